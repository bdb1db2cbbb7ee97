// The run of this folder in place of a dashboard's runs: its model answers in the browser.
import * as ort from "./onnxruntime.js";
import { el } from "./page.js";
import { Posterior } from "./posterior.js";

const LONGEST = 4_096; // characters
const GZIP = [0x1f, 0x8b]; // the first bytes of a file
export const ABSENT = null; // no error is worth asking again

async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} is missing: reload the page`);
  return response;
}

// A file is unpacked here, unless the host has said that it is packed, so that the browser has done it.
async function unpacked(path) {
  const content = new Uint8Array(await (await read(path)).arrayBuffer());
  if (!GZIP.every((byte, i) => content[i] === byte)) return content;
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function once(make) {
  let made;
  return () => (made ??= make());
}

const run = await (await read("run.json")).json();
const posterior = once(async () => new Posterior(await (await read("grammar.json")).json()));
const model = once(async () => {
  const [runtime, weights] = await Promise.all([unpacked("onnxruntime.wasm.gz"), unpacked("weights.onnx.gz")]);
  Object.assign(ort.env.wasm, { wasmBinary: runtime, numThreads: 1 }); // several need headers of the host
  return ort.InferenceSession.create(weights);
});
const numbers = new Map(run.names.map((name, i) => [name, i]));
const isBytes = run.tokens === "bytes";

function idsOf(text, blank) {
  const idOf = (character) => (character === blank ? [run.mask]
    : isBytes ? [...new TextEncoder().encode(character)] : [numbers.get(character) ?? run.mask]);
  return [...text].flatMap(idOf);
}

// Overlapping windows of a long text, and the part that each decides: as in trained/batches.py.
function pieces(length) {
  const { longest } = run;
  if (length <= longest) return [{ begin: 0, end: length, from: 0, to: length }];
  const begins = [...d3.range(0, length - longest, Math.max(1, longest >> 1)), length - longest];
  const ends = d3.pairs(begins, (here, next) => (here + longest + next) >> 1);
  const bounds = [0, ...ends, length];
  return begins.map((begin, i) => ({ begin, end: begin + longest, from: bounds[i], to: bounds[i + 1] }));
}

async function predicted(ids, wanted) {
  const tensor = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, ids.length]);
  const session = await model();
  const { logits } = await session.run({ input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) });
  const n_tokens = logits.dims[2];
  return wanted.map((at) => {
    const row = logits.data.subarray(at * n_tokens, at * n_tokens + run.names.length); // no special tokens
    const most = d3.max(row);
    const exponentials = Array.from(row, (logit) => Math.exp(logit - most));
    const sum = d3.sum(exponentials);
    return run.names.map((name, i) => [name, exponentials[i] / sum]);
  });
}

async function exactly(ids, wanted) {
  return (await posterior()).at(wanted, ids.map((id) => run.names[id] ?? null));
}

// As `answer` in trained/answers.py.
export async function ask(path, method, { text, blank, exact = false, top = 8 }) {
  const ids = idsOf(text, blank);
  const windows = pieces(ids.length);
  if (text.length > LONGEST) throw new Error(`the text has ${text.length} characters: this page takes ${LONGEST}`);
  if (exact && windows.length > 1) throw new Error(`exact probabilities are known for ${run.longest} characters`);
  const offsets = d3.range(ids.length).filter((i) => ids[i] === run.mask);
  const find = exact ? exactly : predicted;
  const candidates = [];
  for (const { begin, end, from, to } of windows) {
    const wanted = offsets.filter((i) => from <= i && i < to).map((i) => i - begin);
    if (wanted.length) candidates.push(...await find(ids.slice(begin, end), wanted));
  }
  const best = (pairs) => d3.sort(pairs, ([, share]) => -share).slice(0, top);
  return { offsets, candidates: candidates.map(best), is_of_play: run.is_of_play };
}

export const liveRuns = (offer) => offer([run]);
document.getElementById("waiting").remove();
export const site = {
  title: "Try a model", about: el("p.quiet", run.about), exact: run.is_of_play && "exact, by the grammar of the play",
  hasAttention: false, ready: model, example: run.example,
};
