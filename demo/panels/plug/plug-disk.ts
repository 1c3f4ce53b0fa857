/** The worker of the simulated disk: it records commits once, and opens what any power loss leaves of them. */

import { open, type Recovery } from "varve";
import { commitsOf, differences, type Shape, writeCommit } from "./commits.js";
import {
  afterPowerLoss,
  MemoryFile,
  RecordedFile,
  SECTOR,
  type SectorState,
  storageOf,
  type Unflushed,
} from "./disk.js";

const SHAPE: Shape = { records: 24, perCommit: 6, bytes: 256 };
const MEMORY = 4 * 1_048_576;

export const COMMITS = 18;
/** Every so many commits are flushed. */
export const FLUSH_EVERY = 3;

export type Question =
  | { ask: "record" }
  | { ask: "crash"; at: number; unflushed: Unflushed; seed: number }
  | { ask: "every crash"; seed: number };

export type Answer =
  | { kind: "progress"; done: number }
  | { kind: "answer"; id: number; answer: unknown }
  | { kind: "failed"; id: number; reason: string };

/** The recording, as the page needs it. */
export interface Recorded {
  /** How many sector writes and flushes there are: the power may fail before the first or after any. */
  steps: number;
  /** Positions of all sectors that are ever written, in bytes. */
  sectors: number[];
}

/** What a power loss leaves. */
export interface Crash {
  at: number;
  /** How many commits were acknowledged as written then, and as flushed. */
  acknowledged: number;
  flushed: number;
  states: SectorState[];
  /** How many commits are there after opening again. */
  found: number;
  recovery: Recovery | undefined;
  problems: number;
  /** What is wrong, if anything is. */
  failure: string | undefined;
}

export interface Sweep {
  disks: number;
  failures: string[];
}

const file = new RecordedFile();
/** After how many steps each commit was acknowledged as written, and as flushed. */
const written: number[] = [];
const flushed: number[] = [];

async function record(): Promise<Recorded> {
  const db = await open("disk", { storage: storageOf(file), memory: MEMORY });
  for (let n = 1; n <= COMMITS; n++) {
    writeCommit(db, n, SHAPE);
    db.commit();
    written[n] = file.steps.length;
    if (n % FLUSH_EVERY !== 0) continue;
    db.flush();
    for (let m = n; m > n - FLUSH_EVERY; m--) flushed[m] = file.steps.length;
  }
  file.isRecording = false;
  await db.close();
  return { steps: file.steps.length, sectors: file.sectors().map((one) => one * SECTOR) };
}

/** Opens what is left in the usual way, and checks all of it. */
async function crash(at: number, unflushed: Unflushed, seed: number): Promise<Crash> {
  const { image, states } = afterPowerLoss(file, at, unflushed, seed);
  const count = (times: number[]) => times.filter((time) => time <= at).length;
  const result = {
    at,
    acknowledged: count(written),
    flushed: count(flushed),
    states: file.sectors().map((sector) => states.get(sector) ?? "empty"),
  };
  try {
    const storage = storageOf(new MemoryFile(image));
    const db = await open("disk", { storage, memory: MEMORY });
    const found = commitsOf(db);
    const difference = differences(db, SHAPE);
    const { problems } = await db.verify();
    const { recovery } = db;
    await db.close();
    const isLost = found < result.flushed;
    const failure = isLost ? `only ${found} of ${result.flushed} flushed commits` : difference;
    return { ...result, found, recovery, problems: problems.length, failure };
  } catch (error) {
    return { ...result, found: 0, recovery: undefined, problems: 0, failure: String(error) };
  }
}

/** Every step, with all, none and some of what was not flushed. */
async function everyCrash(seed: number): Promise<Sweep> {
  const sweep: Sweep = { disks: 0, failures: [] };
  const { length } = file.steps;
  for (let at = 0; at <= length; at++) {
    for (const unflushed of ["all", "none", "some"] as const) {
      const { failure, problems } = await crash(at, unflushed, seed);
      sweep.disks += 1;
      if (failure !== undefined) sweep.failures.push(`step ${at}: ${failure}`);
      else if (problems > 0) sweep.failures.push(`step ${at}: verify() found damage`);
    }
    post({ kind: "progress", done: at / length });
  }
  return sweep;
}

function post(answer: Answer): void {
  self.postMessage(answer);
}

async function answerTo(question: Question): Promise<unknown> {
  if (question.ask === "record") return record();
  if (question.ask === "every crash") return everyCrash(question.seed);
  return crash(question.at, question.unflushed, question.seed);
}

self.onmessage = async ({ data }: MessageEvent<{ id: number; question: Question }>) => {
  const { id, question } = data;
  try {
    post({ kind: "answer", id, answer: await answerTo(question) });
  } catch (error) {
    post({ kind: "failed", id, reason: String(error) });
  }
};
