// Kills writers of a database, one after the other, and checks the file: all acknowledged writes are there, and
// no part of a commit is without the rest.
//   npm run torture:browser [-- --in node,chromium-renderer,chromium,firefox] [--rounds n] [--seed n]
// The seed determines the writes; the moments of the kills are random. The results are written to
// benches/results/kills.json.

import { entry, Problem, parseArguments, say } from "../../scripts/lib.mjs";
import { begin, keep } from "../../scripts/record.mjs";
import { VICTIMS } from "./victims.mjs";

const USAGE = `npm run torture:browser [-- --in ${Object.keys(VICTIMS).join(",")}] [--rounds n] [--seed n]
  --rounds   how often each is killed; 20 when left out`;

/** The timeout for a writer to start, check the file, and end by itself. */
const REPORT_TIMEOUT_MS = 120_000;

/** The longest time that a writer writes until it is killed. */
const LONGEST_MS = 2_000;

/** One in so many writers is killed within `SOON_MS`, mostly while it opens the database. */
const ONE_IN = 5;
const SOON_MS = 250;

entry(async () => {
  const known = { "--in": "text", "--rounds": "count", "--seed": "count" };
  const { values } = parseArguments(process.argv.slice(2), known, USAGE);
  const names = values["--in"]?.split(",") ?? Object.keys(VICTIMS);
  const unknown = names.find((name) => !Object.hasOwn(VICTIMS, name));
  if (unknown !== undefined) throw new Problem(`${unknown} cannot be killed here.\n\n${USAGE}`);
  const { "--rounds": rounds = 20, "--seed": seed = Date.now() % 1_000_000 } = values;
  say(`  seed ${seed}`);

  const begun = begin();
  const sum = { passed: 0, failed: 0 };
  const runs = [];
  for (const name of names) {
    const run = await VICTIMS[name]((victim) => torture(name, victim, rounds, seed));
    sum.passed += run.rounds;
    sum.failed += run.failures.length;
    runs.push(run);
  }
  keep("kills", begun, { seed, rounds, runs });
  process.stdout.write(`${sum.passed} passed, ${sum.failed} failed, 0 skipped\n`);
  if (sum.failed > 0 || sum.passed === 0) process.exitCode = 1;
});

/**
 * Two thirds of the rounds use a database of small segments, in which most kills hit a checkpoint, or a segment
 * that is being relocated or erased. The rest, if there are at least six rounds, use one of usual segments.
 */
async function torture(name, victim, rounds, seed) {
  const start = Date.now();
  const usual = rounds < 6 ? 0 : Math.floor(rounds / 3);
  const total = new Total();
  const [databases, failures] = [[], []];
  for (const [segmentLog2, count] of [
    [16, rounds - usual],
    [20, usual],
  ]) {
    if (count === 0) continue;
    const database = new TorturedDatabase(victim, total, seed, segmentLog2);
    try {
      databases.push(await database.torture(count));
    } catch (error) {
      failures.push(error.message);
      say(`FAILED ${name}, segments of 2^${segmentLog2}: ${error.message}`);
      say(`  again: npm run torture:browser -- --in ${name} --rounds ${rounds} --seed ${seed}`);
      await victim.close();
    }
  }
  const seconds = Math.round((Date.now() - start) / 1_000);
  say(`  ${name}: ${total} (${seconds} s)`);
  return { killed: name, version: victim.version, ...total, databases, failures, seconds };
}

/** The totals over all rounds, recorded under these names. */
class Total {
  rounds = 0;
  killedWhileOpening = 0;
  acknowledged = 0;
  beyond = 0;
  withinATurn = 0;
  refused = 0;
  fromCheckpoint = 0;
  afterATornEnd = 0;
  slowestOpenMs = 0;

  /** Adds a round: the turns that a writer acknowledged, and what the next writer found. */
  add(acknowledged, { reach, ms, refused, fromCheckpoint, tornBytes }) {
    this.rounds += 1;
    this.acknowledged += acknowledged;
    this.beyond += reach.turns - acknowledged;
    this.withinATurn += reach.steps > 0 ? 1 : 0;
    this.refused += refused;
    this.fromCheckpoint += fromCheckpoint ? 1 : 0;
    this.afterATornEnd += tornBytes > 0 ? 1 : 0;
    this.slowestOpenMs = Math.max(this.slowestOpenMs, Math.round(ms));
  }

  toString() {
    return (
      `${this.rounds} rounds, ${this.killedWhileOpening} more killed while opening; ` +
      `${this.acknowledged} commits acknowledged, all there, and ${this.beyond} beyond; ` +
      `opened from a checkpoint ${this.fromCheckpoint} times, after a torn end ${this.afterATornEnd} times, ` +
      `within a long turn ${this.withinATurn} times; ${this.slowestOpenMs} ms at most until it was open, ` +
      `${this.refused} times refused before`
    );
  }
}

/** A database and its writers. */
class TorturedDatabase {
  #victim;
  #total;
  #plan;
  #past = [];

  constructor(victim, total, seed, segmentLog2) {
    this.#victim = victim;
    this.#total = total;
    this.#plan = { seed, segmentLog2, name: `segments of ${2 ** segmentLog2}` };
  }

  /** Kills this many writers. Returns the final sizes of the database. */
  async torture(rounds) {
    let acknowledged = 0;
    for (let writer = 1; writer <= rounds; writer += 1) {
      const reported = await this.#runAndKill(writer);
      this.#record(writer, reported.found, acknowledged);
      acknowledged = reported.acknowledged;
    }
    const last = await this.#begin(rounds + 1, false);
    await last.until("ended");
    this.#record(rounds + 1, last.found, acknowledged);
    return this.#checkSize(last);
  }

  /** Starts a writer and kills it at a random moment; repeated if it was killed before it reported what it found. */
  async #runAndKill(writer) {
    for (;;) {
      const reported = await this.#begin(writer, true);
      const soon = Math.random() * ONE_IN < 1;
      if (!soon) await reported.until("found");
      await reported.failsWithin(Math.random() * (soon ? SOON_MS : LONGEST_MS));
      await this.#victim.kill();
      if (reported.found !== undefined) return reported;
      // It has written nothing, because it waits until that report was received. The same writer starts again.
      this.#total.killedWhileOpening += 1;
    }
  }

  async #begin(writer, writes) {
    const reported = new WriterReports(writer);
    const order = { ...this.#plan, writer, past: this.#past, writes };
    await this.#victim.begin(order, (report) => reported.receive(report));
    return reported;
  }

  /** Checks and counts what a writer found of the previous one, which had acknowledged this many turns. */
  #record(writer, found, acknowledged) {
    const { turns } = found.reach;
    if (turns < acknowledged) {
      throw new Error(
        `writer ${writer - 1} acknowledged turn ${acknowledged}, and ${turns} are there`,
      );
    }
    if (writer === 1) return;
    this.#past.push(found.reach);
    this.#total.add(acknowledged, found);
  }

  /**
   * Checks that the remains of killed writers are reclaimed: the file has at most 1.5 times the live bytes, two
   * copies of the index, and four segments.
   */
  #checkSize({ found: { keys }, ended: { liveBytes, fileBytes } }) {
    const segment = 2 ** this.#plan.segmentLog2;
    const bound = 1.5 * liveBytes + 2 * (32 * keys + segment) + 4 * segment;
    const what = `${keys} keys, live ${liveBytes} bytes, file ${fileBytes} of ${Math.round(bound)}`;
    say(`  segments of ${segment} bytes: ${what}`);
    if (fileBytes > bound) throw new Error(`the file is larger than its bound: ${what}`);
    return { segmentBytes: segment, keys, liveBytes, fileBytes, boundBytes: Math.round(bound) };
  }
}

/** The reports of a writer. */
class WriterReports {
  #writer;
  #notify;
  #changed;
  acknowledged = 0;
  found;
  ended;
  failed;

  constructor(writer) {
    this.#writer = writer;
    this.#renew();
  }

  #renew() {
    this.#changed = new Promise((resolve) => {
      this.#notify = resolve;
    });
  }

  receive({ writer, acknowledged, found, ended, failed }) {
    // Late reports of an earlier writer are ignored.
    if (writer !== this.#writer) return;
    this.acknowledged = Math.max(this.acknowledged, acknowledged ?? 0);
    this.found ??= found;
    this.ended ??= ended;
    this.failed ??= failed;
    this.#notify();
    this.#renew();
  }

  /** Waits until it has reported this; throws if it has failed, or after a timeout. */
  async until(what) {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#notify();
    }, REPORT_TIMEOUT_MS);
    while (this[what] === undefined && this.failed === undefined && !late) await this.#changed;
    clearTimeout(timer);
    if (this.failed !== undefined) throw new Error(this.failed);
    if (late)
      throw new Error(
        `writer ${this.#writer} has not ${what} after ${REPORT_TIMEOUT_MS / 1_000} s`,
      );
  }

  async failsWithin(ms) {
    await pause(ms);
    if (this.failed !== undefined) throw new Error(this.failed);
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
