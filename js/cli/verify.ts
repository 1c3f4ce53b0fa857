/** `varve verify` */

import { CorruptionError, type Problem, type ProblemKind, type Verification } from "../index.js";
import type { Call } from "./args.js";
import { counted, duration, number, size, table } from "./format.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, type Output, Progress } from "./output.js";

/** The consequence of each kind of damage. */
const CONSEQUENCE: Record<ProblemKind, string> = {
  superblock: "superblock: the other one is used",
  header: "segment header: its copy is used",
  frame: "writes: those still current cannot be read",
  record: "record: its value cannot be read",
  value: "large value: it cannot be read",
  checkpoint: "checkpoint: the log has the same data, but opening takes longer",
  zeros: "unused space: harmless",
  index: "index: it does not match what is there",
};

const NEXT_STEP = "varve salvage FILE NEWFILE copies what is intact.\n";

export async function verify(call: Call, output: Output): Promise<ExitCode> {
  const [path = ""] = call.positionals;
  const start = performance.now();
  const progress = new Progress(process.stderr);
  let found: Verification;
  try {
    found = await inspectFile(path, { ordered: false }, (db) =>
      db.verify({ onProgress: ({ bytes, total }) => progress.print("verifying", bytes, total) }),
    );
  } catch (error) {
    // Damage that prevents opening is a result of this command, not a failure.
    if (!(error instanceof CorruptionError)) throw error;
    return printRefused(call, output, error);
  } finally {
    progress.end();
  }
  const ms = performance.now() - start;
  if (call.flags.has("json")) {
    await output.print(`${JSON.stringify({ file: path, opens: true, ...found })}\n`);
  } else {
    await output.print(described(found, ms));
  }
  return found.ok ? EXIT.ok : EXIT.negative;
}

function described({ ok, bytes, frames, records, problems }: Verification, ms: number) {
  const seen = `${counted(records, "record")} in ${counted(frames, "frame")}, ${size(bytes)}`;
  if (ok) return `ok: ${seen}, verified in ${duration(ms)}\n`;
  return (
    `damaged in ${counted(problems.length, "place")}; intact: ${seen}\n\n${tableOf(problems)}\n` +
    NEXT_STEP
  );
}

function tableOf(problems: readonly Problem[]): string {
  const rows = problems.map(({ what, offset, length }) => {
    const place = `at ${number(offset)}, ${counted(length, "byte")}`;
    return [place, CONSEQUENCE[what]] as const;
  });
  return table(rows);
}

async function printRefused(
  { positionals, flags }: Call,
  output: Output,
  { details }: CorruptionError,
): Promise<ExitCode> {
  const [path = ""] = positionals;
  if (flags.has("json")) {
    await output.print(`${JSON.stringify({ file: path, opens: false, ok: false, details })}\n`);
    return EXIT.negative;
  }
  await output.print(`too damaged to open${details ? `: ${placeOf(details)}` : ""}\n`);
  await output.print(`\n${NEXT_STEP}`);
  return EXIT.negative;
}

/** Describes where a file is damaged that does not open. */
export function placeOf(details: NonNullable<CorruptionError["details"]>): string {
  const { position, intactFrames, intactBytes } = details;
  if (position === 0) return "neither of the two superblocks at its start can be read";
  const place = `at byte ${number(position)}, in flushed data`;
  if (intactFrames === 0) return place;
  const are = intactFrames === 1 ? "is" : "are";
  return `${place}; ${counted(intactFrames, "frame")} (${size(intactBytes)}) beyond it ${are} intact`;
}
