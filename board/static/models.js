// The runs that the page /try offers, and their answers: here, the dashboard's. `board/browser` has those without one.
export { ABSENT, ask, liveRuns } from "./page.js";
export const site = {
  title: "Try a run", about: null, // in place of the choice of a run
  exact: "exact, for runs on the play", hasAttention: true,
};
