// Makes the summary of a result that is committed: medians and quartiles without the samples, one row a line.

import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { entry, Problem, root } from "./lib.mjs";

const USAGE = `node scripts/summarize-record.mjs FILE …
  FILE   a result from benches/results; its summary goes to benches/records, under the same name`;

/** The text of a result's summary. */
function summaryOf(result) {
  const { machine, sections, runs, verdict, samples, ...rest } = result;
  const members = Object.entries({ ...rest, machine }).map(([name, value]) => member(name, value));
  if (sections !== undefined) members.push(`"sections": ${list(sections.map(section))}`);
  if (runs !== undefined) members.push(`"runs": ${list(runs.map(line))}`);
  if (verdict !== undefined) members.push(`"verdict": ${list(verdict.map(line))}`);
  // A soak's samples are its history; the last one and the verdict are enough.
  if (Array.isArray(samples)) {
    members.push(member("sampleCount", samples.length), member("lastSample", samples.at(-1)));
  }
  return `{\n${members.join(",\n")}\n}\n`;
}

function section({ rows, goals, notes, ...rest }) {
  const members = Object.entries(rest).map(([name, value]) => member(name, value));
  members.push(`"rows": ${list(rows.map(line))}`, `"goals": ${list(goals.map(line))}`);
  members.push(`"notes": ${list(notes.map(line))}`);
  return `{\n${members.join(",\n")}\n}`;
}

const member = (name, value) => `${JSON.stringify(name)}: ${line(value)}`;
const list = (items) => (items.length === 0 ? "[]" : `[\n${items.join(",\n")}\n]`);

function line(value) {
  return JSON.stringify(value, (name, part) => {
    if (name === "samples" && Array.isArray(part)) return part.length;
    return typeof part === "number" && !Number.isInteger(part) ? Number(part.toPrecision(4)) : part;
  });
}

entry(() => {
  const files = process.argv.slice(2);
  if (files.length === 0) throw new Problem(USAGE);
  for (const file of files) {
    const summary = summaryOf(JSON.parse(readFileSync(file, "utf8")));
    writeFileSync(join(root, "benches/records", basename(file)), summary);
  }
});
