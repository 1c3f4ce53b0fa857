// Kills what writes to a database, again and again, and looks at what it left: everything that was
// acknowledged, nothing of what was not written yet, and no part of a commit.
//   npm run torture:browser [-- --in node,chromium-renderer,chromium,firefox] [--rounds n] [--seed n]
// The seed decides what is written; when it is killed is chance. What came of it goes to
// benches/results/kills.json.

import { entry, Problem, parseArguments, say } from "../../scripts/lib.mjs";
import { begin, keep } from "../../scripts/record.mjs";
import { VICTIMS } from "./victims.mjs";

const USAGE = `npm run torture:browser [-- --in ${Object.keys(VICTIMS).join(",")}] [--rounds n] [--seed n]
  --rounds   how often each is killed; 20 when left out`;

/** How long a life may take to begin, to find out what was left, and to end by itself. */
const PATIENCE_MS = 120_000;

/** What a life does at most until it is killed. */
const LONGEST_MS = 2_000;

/** One in so many is killed soon after it was begun: most of them while the database is opened. */
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
 * Two thirds of the rounds in a database of small segments, where there is a checkpoint, a segment to
 * move or one to erase at any moment; the rest, if there are many, in one as everybody has.
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
    const database = new Tortured(victim, total, seed, segmentLog2);
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

/** What is counted over all rounds, and recorded by these names. */
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

  /** A round is over: what the life acknowledged, and what the next one found. */
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

/** A database over many lives. */
class Tortured {
  #victim;
  #total;
  #plan;
  #past = [];

  constructor(victim, total, seed, segmentLog2) {
    this.#victim = victim;
    this.#total = total;
    this.#plan = { seed, segmentLog2, name: `segments of ${2 ** segmentLog2}` };
  }

  /** Kills it so often, and tells what is left of the database in the end. */
  async torture(rounds) {
    let acknowledged = 0;
    for (let life = 1; life <= rounds; life += 1) {
      const reported = await this.#liveAndDie(life);
      this.#note(life, reported.found, acknowledged);
      acknowledged = reported.acknowledged;
    }
    const last = await this.#begin(rounds + 1, false);
    await last.until("ended");
    this.#note(rounds + 1, last.found, acknowledged);
    return this.#checkRoom(last);
  }

  /** Begins a life, and kills it at any moment; until one has found out what the last one left. */
  async #liveAndDie(life) {
    for (;;) {
      const reported = await this.#begin(life, true);
      const soon = Math.random() * ONE_IN < 1;
      if (!soon) await reported.until("found");
      await reported.failsWithin(Math.random() * (soon ? SOON_MS : LONGEST_MS));
      await this.#victim.kill();
      if (reported.found !== undefined) return reported;
      // It writes only after that was heard: the life begins anew, in what opening has left.
      this.#total.killedWhileOpening += 1;
    }
  }

  async #begin(life, writes) {
    const reported = new Reported(life);
    const order = { ...this.#plan, life, past: this.#past, writes };
    await this.#victim.begin(order, (news) => reported.hear(news));
    return reported;
  }

  /** What a life has found of the one before it, which had acknowledged so many turns. */
  #note(life, found, acknowledged) {
    const { turns } = found.reach;
    if (turns < acknowledged) {
      throw new Error(`life ${life - 1} acknowledged turn ${acknowledged}, and ${turns} are there`);
    }
    if (life === 1) return;
    this.#past.push(found.reach);
    this.#total.add(acknowledged, found);
  }

  /**
   * Nothing that deaths have left is kept for ever: no more than what lives half as much again, two
   * copies of the index and four segments.
   */
  #checkRoom({ found: { keys }, ended: { liveBytes, fileBytes } }) {
    const segment = 2 ** this.#plan.segmentLog2;
    const bound = 1.5 * liveBytes + 2 * (32 * keys + segment) + 4 * segment;
    const what = `${keys} keys, live ${liveBytes} bytes, file ${fileBytes} of ${Math.round(bound)}`;
    say(`  segments of ${segment} bytes: ${what}`);
    if (fileBytes > bound) throw new Error(`the file is larger than its bound: ${what}`);
    return { segmentBytes: segment, keys, liveBytes, fileBytes, boundBytes: Math.round(bound) };
  }
}

/** What a life tells. */
class Reported {
  #life;
  #heard;
  #changed;
  acknowledged = 0;
  found;
  ended;
  failed;

  constructor(life) {
    this.#life = life;
    this.#renew();
  }

  #renew() {
    this.#changed = new Promise((resolve) => {
      this.#heard = resolve;
    });
  }

  hear({ life, acknowledged, found, ended, failed }) {
    // What a life before it has reported comes too late to count.
    if (life !== this.#life) return;
    this.acknowledged = Math.max(this.acknowledged, acknowledged ?? 0);
    this.found ??= found;
    this.ended ??= ended;
    this.failed ??= failed;
    this.#heard();
    this.#renew();
  }

  /** Waits for what it is to tell. */
  async until(what) {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#heard();
    }, PATIENCE_MS);
    while (this[what] === undefined && this.failed === undefined && !late) await this.#changed;
    clearTimeout(timer);
    if (this.failed !== undefined) throw new Error(this.failed);
    if (late) throw new Error(`life ${this.#life} has not ${what} after ${PATIENCE_MS / 1_000} s`);
  }

  async failsWithin(ms) {
    await pause(ms);
    if (this.failed !== undefined) throw new Error(this.failed);
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
