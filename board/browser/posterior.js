// The exact posterior of hidden characters under a grammar: forward-backward (Rabiner 1989), in float64, as in
// data/play/floor.py. State s writes `characters[s]`; edge e leads from `sources[e]` to `targets[e]`.
export class Posterior {
  constructor({ characters, sources, targets, probabilities, stationary }) {
    this.alphabet = [...new Set(characters)];
    this.writes = Uint8Array.from(characters, (character) => this.alphabet.indexOf(character));
    this.stationary = Float64Array.from(stationary);
    this.forwards = movesOf(stationary.length, sources, targets, probabilities);
    this.backwards = movesOf(stationary.length, targets, sources, probabilities);
  }

  // P(character | all visible ones) at the `wanted` positions, each as pairs. `shown` has null at hidden ones.
  at(wanted, shown) {
    const kept = new Map(wanted.map((t) => [t, null]));
    let past = this.stationary; // P(state | all shown so far)
    shown.forEach((character, t) => {
      past = this.#explaining(t ? moved(past, this.forwards) : past, character);
      if (!past) throw new Error(`the grammar cannot generate this text (character ${t + 1} is impossible)`);
      if (kept.has(t)) kept.set(t, past);
    });
    let future = past.slice().fill(1); // P(all shown later | state), up to a factor
    for (let t = shown.length - 1; t >= Math.min(...wanted); t -= 1) {
      if (kept.has(t)) kept.set(t, this.#shares(kept.get(t), future));
      future = moved(this.#explaining(future, shown[t]), this.backwards);
    }
    return wanted.map((t) => kept.get(t));
  }

  // The states that write what is shown, scaled to sum to 1; null if there are none.
  #explaining(state, shown) {
    const id = this.alphabet.indexOf(shown);
    const fitting = new Float64Array(state.length);
    let sum = 0;
    for (let s = 0; s < state.length; s += 1) {
      if (shown === null || this.writes[s] === id) sum += fitting[s] = state[s];
    }
    if (!sum) return null;
    for (let s = 0; s < state.length; s += 1) fitting[s] /= sum;
    return fitting;
  }

  #shares(past, future) {
    const sums = new Float64Array(this.alphabet.length);
    for (let s = 0; s < past.length; s += 1) sums[this.writes[s]] += past[s] * future[s];
    const total = d3.sum(sums);
    return this.alphabet.map((character, i) => [character, sums[i] / total]);
  }
}

// The edges by the state that they leave: those of s are from begins[s] to begins[s + 1].
function movesOf(n, from, to, probabilities) {
  const order = d3.sort(d3.range(from.length), (e) => from[e]);
  const begins = new Uint32Array(n + 1);
  for (const state of from) begins[state + 1] += 1;
  for (let s = 0; s < n; s += 1) begins[s + 1] += begins[s];
  const of = (values) => order.map((e) => values[e]);
  return { begins, ends: Uint32Array.from(of(to)), shares: Float64Array.from(of(probabilities)) };
}

function moved(state, { begins, ends, shares }) {
  const after = new Float64Array(state.length);
  for (let s = 0; s < state.length; s += 1) {
    if (!state[s]) continue; // most, after a visible character
    for (let e = begins[s]; e < begins[s + 1]; e += 1) after[ends[e]] += state[s] * shares[e];
  }
  return after;
}
