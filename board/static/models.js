// The runs that the page /try offers, and their answers: here, the dashboard's. `board/browser` has those without one.
export { ABSENT, ask, liveRuns } from "./page.js";
export const site = { title: "Try a run", about: null, hasAttention: true }; // about: in place of the choice of a run
