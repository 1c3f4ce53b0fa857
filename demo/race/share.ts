/** Results as Markdown, as JSON, and as a link that holds them. What comes from a link is checked: it may be anything. */

import {
  REFERENCE,
  STORES,
  type StoreId,
  storeInfo,
  WORKLOADS,
  type WorkloadId,
  workloadInfo,
} from "./plan.js";
import {
  type Figures,
  type Machine,
  type Outcome,
  type Results,
  type Rows,
  spreadOf,
} from "./results.js";
import { comparison, day, percent, timeInWords } from "./words.js";

const FORMAT = "varve race 1";

/** The members of figures in the order of the compact form. */
const FIGURES = ["p50", "p95", "p99", "q1", "q3", "slices"] as const;

type CompactOutcome = number[] | string;

const PREFIXES = { void: "void: ", failed: "failed: ", absent: "absent: " } as const;

/** A small plain object, as it is kept in records and links. */
export function compact({ rows, ...rest }: Results) {
  const compactRows: Record<string, Record<string, CompactOutcome>> = {};
  for (const [workload, byStore] of Object.entries(rows)) {
    const row: Record<string, CompactOutcome> = {};
    for (const [store, outcome] of Object.entries(byStore)) {
      row[store] =
        outcome.kind === "measured"
          ? FIGURES.map((name) => outcome[name])
          : `${PREFIXES[outcome.kind]}${outcome.reason}`;
    }
    compactRows[workload] = row;
  }
  return { format: FORMAT, ...rest, rows: compactRows };
}

export class UnreadableError extends Error {
  override readonly name = "UnreadableError";
}

function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new UnreadableError(what);
}

type Plain = Record<string, unknown>;

function isPlain(value: unknown): value is Plain {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const MAX_TEXT = 500;

function text(of: Plain, name: string): string {
  const value = of[name];
  must(typeof value === "string" && value.length <= MAX_TEXT, `its "${name}" is not a short text`);
  return value;
}

function figure(of: Plain, name: string): number {
  const value = of[name];
  must(
    typeof value === "number" && Number.isFinite(value) && value >= 0,
    `its "${name}" is no number`,
  );
  return value;
}

function outcomeOf(value: unknown): Outcome {
  if (typeof value === "string") {
    for (const kind of ["void", "failed", "absent"] as const) {
      if (value.startsWith(PREFIXES[kind])) {
        return { kind, reason: value.slice(PREFIXES[kind].length, MAX_TEXT) };
      }
    }
  }
  const isFigures =
    Array.isArray(value) &&
    value.length === FIGURES.length &&
    value.every((one) => typeof one === "number" && Number.isFinite(one) && one >= 0) &&
    value[0] > 0;
  must(isFigures, "it has a result that is neither figures nor a reason");
  const [p50, p95, p99, q1, q3, slices] = value as [number, number, number, number, number, number];
  return { kind: "measured", p50, p95, p99, q1, q3, slices } satisfies Outcome & Figures;
}

/** The results in a compact form. Stores and workloads that this page does not know are left out. */
export function expand(value: unknown): Results {
  must(isPlain(value) && value.format === FORMAT, `it is not of the format "${FORMAT}"`);
  const { machine, notes, rows } = value;
  must(isPlain(machine) && isPlain(rows), "its machine or its rows are missing");
  must(Array.isArray(notes) && notes.length <= 20, "its notes are no list");
  const length = text(value, "length");
  must(length === "quick" || length === "full", "its length is neither quick nor full");
  const expanded: Rows = {};
  for (const { id } of WORKLOADS) {
    const row = rows[id];
    if (row === undefined) continue;
    must(isPlain(row), "one of its rows is no object");
    const byStore: Partial<Record<StoreId, Outcome>> = {};
    for (const { id: store } of STORES) {
      if (row[store] !== undefined) byStore[store] = outcomeOf(row[store]);
    }
    expanded[id] = byStore;
  }
  const checked: Machine = {
    browser: text(machine, "browser"),
    system: text(machine, "system"),
    cores: figure(machine, "cores"),
    memory: figure(machine, "memory"),
    clock: figure(machine, "clock"),
  };
  return {
    at: text(value, "at"),
    length,
    machine: checked,
    notes: notes.map((note) => text({ note }, "note")),
    rows: expanded,
  };
}

/** JSON with one row of results a line, so that it is short and its differences can be read. */
export function toJson(results: Results): string {
  const { rows, ...rest } = compact(results);
  const linesOf = (object: object) =>
    Object.entries(object).map(
      ([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`,
    );
  const members = [...linesOf(rest), `"rows": {\n${linesOf(rows).join(",\n")}\n}`];
  return `{\n${members.join(",\n")}\n}\n`;
}

const HASH = "#race=";
/** A link with more, unpacked, is refused: some bytes can unpack to gigabytes. */
const MAX_UNPACKED = 1_000_000;

/** The part of a link behind the page's address. It is not sent to the server. */
export async function toHash(results: Results): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(compact(results)));
  const packed = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const all = new Uint8Array(await new Response(packed).arrayBuffer());
  let binary = "";
  for (const byte of all) binary += String.fromCharCode(byte);
  return HASH + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The results in a link, or `undefined` if it has none. Throws an `UnreadableError` if they are damaged. */
export async function fromHash(hash: string): Promise<Results | undefined> {
  if (!hash.startsWith(HASH)) return undefined;
  let unpacked: unknown;
  try {
    const binary = atob(hash.slice(HASH.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    unpacked = JSON.parse(await textOf(stream));
  } catch (cause) {
    throw new UnreadableError("it is cut off or damaged", { cause });
  }
  return expand(unpacked);
}

async function textOf(stream: ReadableStream<Uint8Array>): Promise<string> {
  const utf8 = new TextDecoder();
  const reader = stream.getReader();
  let all = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return all + utf8.decode();
    all += utf8.decode(value, { stream: true });
    if (all.length > MAX_UNPACKED) throw new RangeError("too long");
  }
}

export function machineInWords({ browser, system, cores, memory }: Machine): string {
  const parts = [browser, system, `${cores} ${cores === 1 ? "core" : "cores"}`];
  if (memory > 0) parts.push(`${memory >= 8 ? "8 GB or more" : `${memory} GB`}`);
  return parts.join(", ");
}

const LENGTHS = { quick: "a quick look", full: "a full race" };

export function toMarkdown(results: Results): string {
  const { at, length, machine, notes, rows } = results;
  const lines = [
    `varve's race, ${LENGTHS[length]} of ${day(at)}: ${machineInWords(machine)}. A time of p50 is the median of slices, the spread the width of their middle half. Contents were equal after each workload, unless a row says otherwise.`,
    ...notes.map((note) => `\n${note}`),
  ];
  for (const [workload, byStore] of Object.entries(rows)) {
    const { group, title, unit, commits } = workloadInfo(workload as WorkloadId);
    lines.push(
      "",
      `**${group}: ${title}** (time of ${unit}; ${commits})`,
      "",
      "| | p50 | p95 | p99 | spread | against varve, written |",
      "| --- | --: | --: | --: | --: | --- |",
    );
    const reference = byStore[REFERENCE];
    for (const [store, outcome] of Object.entries(byStore)) {
      const { name } = storeInfo(store as StoreId);
      if (outcome.kind !== "measured") {
        lines.push(`| ${name} | | | | | ${outcome.kind}: ${outcome.reason.replaceAll("|", "/")} |`);
        continue;
      }
      const against =
        store === REFERENCE || reference?.kind !== "measured"
          ? ""
          : comparison(outcome.p50, reference.p50);
      const cells = [outcome.p50, outcome.p95, outcome.p99].map(timeInWords);
      lines.push(`| ${[name, ...cells, percent(spreadOf(outcome)), against].join(" | ")} |`);
    }
  }
  return `${lines.join("\n")}\n`;
}
