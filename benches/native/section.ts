import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cargoBuild } from "../cargo.js";
import type { BenchOptions } from "../options.js";
import { type Row, row, type Section } from "../report.js";

/** What the program prints of each measure: the times of all rounds. */
interface Measured {
  readonly work: string;
  readonly of: string;
  readonly times: readonly number[];
}

/** The part of the table in which a measure is. */
function groupOf(work: string): string {
  if (work.startsWith("JSON")) return "JSON of a record with two texts and a list";
  if (/^\d+ bytes, /.test(work)) return "100,000 owned keys";
  return "a database";
}

export async function nativeBench({ root, quick }: BenchOptions): Promise<Section> {
  const count = quick ? 10_000 : 100_000;
  const rounds = quick ? 2 : 9;
  const target = cargoBuild(root, "native");
  const program = join(target, "release", "native-bench");
  const printed = execFileSync(program, [tmpdir(), String(count), String(rounds)], {
    encoding: "utf8",
  });
  const measured: readonly Measured[] = JSON.parse(printed);
  const rows: Row[] = measured.map(({ work, of, times }) => {
    const unit = work.includes("µs") ? "µs" : "ns";
    return { group: groupOf(work), ...row(work, of, "", unit, times) };
  });
  return {
    title: `Native Rust: ${count.toLocaleString("en")} keys of 17 bytes with 64 bytes each`,
    rows,
    goals: [],
    notes: [
      "varve, redb and fjall take turns in coming first. Each writes in batches of 1,000 keys and makes the last one " +
        "durable, is opened again, and reads 100,000 keys twice and all of them three times. All read the same.",
      "A get of varve borrows its value, those of redb and fjall keep theirs alive. JSON of varve is between its records " +
        "and text, that of serde_json between structs of strings and vectors and text, not flattened.",
    ],
  };
}
