/** A tab that takes things from a stock, in all ways that there are, and remembers what came of it. */

import { ConflictError, connect } from "varve/client";
import type shop from "./tab-worker.js";

/** So many are under way at once in each way of taking. */
const LANES = 3;

/** Between two of a lane, so that the processor is not all that is measured. */
const PAUSE_MS = 3;

/** Procedures, which are never in vain, leave the other two little chance. */
const RETRIES = 30;

/** Procedures are asked for by so many in one task. */
const BURST = 8;

const FORMS = ["procedure", "declared", "transaction", "update"] as const;

/** What a tab has done. */
export interface Account {
  readonly name: string;
  /** By form: how many were asked for, and how many answered. */
  asked: Record<string, number>;
  answered: Record<string, number>;
  /** How many were given up because others were faster each time. */
  refused: number;
  /** What failed, with its reason. */
  failures: string[];
  /** The longest that one took which is a single request. */
  slowestMs: number;
}

let running: Worker | undefined;
const worker = () => {
  running = new Worker("/tab-worker.js", { type: "module" });
  return running;
};
const client = connect<typeof shop>("tabs", { worker });

let account: Account | undefined;
let isOver = false;
const lanes: Promise<void>[] = [];

async function one(form: string, mark: string): Promise<unknown> {
  if (form === "procedure") return client.call.drop(mark);
  if (form === "declared") {
    const name = account?.name ?? "";
    return client
      .collection("tallies")
      .update(name, { add: { count: 1 }, valueIfMissing: { count: 0 } });
  }
  if (form === "update") {
    const more = (bytes: Uint8Array) => String(Number(new TextDecoder().decode(bytes)) + 1);
    return client.updateIf(`own/${account?.name}`, more, {
      valueIfMissing: "0",
      retries: RETRIES,
    });
  }
  return client.transaction(
    async (tx) => {
      if (await tx.has(mark)) throw new Error(`${mark} was there`);
      const stock = Number(await tx.getText("stock"));
      tx.set(mark, "1");
      tx.set("stock", String(stock - 1));
    },
    { retries: RETRIES },
  );
}

async function lane(form: string, reported: Account): Promise<void> {
  while (!isOver) {
    const take = () => taken(form, reported);
    await Promise.all(Array.from({ length: form === "procedure" ? BURST : 1 }, take));
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** One more, in that form, with what came of it. */
async function taken(form: string, reported: Account): Promise<void> {
  const number = reported.asked[form] as number;
  reported.asked[form] = number + 1;
  const start = Date.now();
  try {
    await one(form, `done/${reported.name}/${form}/${number}`);
    reported.answered[form] = (reported.answered[form] as number) + 1;
  } catch (error) {
    if (error instanceof ConflictError) reported.refused += 1;
    else reported.failures.push(`${form} ${number}: ${String(error)}`);
  }
  // The others repeat what has conflicted, and take as long as that takes.
  if (form !== "procedure" && form !== "declared") return;
  reported.slowestMs = Math.max(reported.slowestMs, Date.now() - start);
}

Object.assign(globalThis, {
  client,
  killWorker: () => running?.terminate(),
  /** Begins to take. */
  begin(name: string): void {
    const counts = () => Object.fromEntries(FORMS.map((form) => [form, 0]));
    account = {
      name,
      asked: counts(),
      answered: counts(),
      refused: 0,
      failures: [],
      slowestMs: 0,
    };
    for (const form of FORMS) {
      for (let i = 0; i < LANES; i += 1) lanes.push(lane(form, account));
    }
  },
  account: () => ({ ...account, status: client.status }),
  /** Takes no more, and tells what came of it when all is answered. */
  async end(): Promise<Account | undefined> {
    isOver = true;
    await Promise.all(lanes);
    return account;
  },
  /** What is in the database. */
  async found(): Promise<{
    stock: number;
    twice: number;
    marks: string[];
    own: [string, number][];
    declared: [string, number][];
  }> {
    const marks = await client.keys({ prefix: "done/" }).all();
    const own: [string, number][] = [];
    for await (const [key, value] of client.entries({ prefix: "own/" })) {
      own.push([key.slice(4), Number(new TextDecoder().decode(value))]);
    }
    const stock = Number(await client.getText("stock"));
    const twice = Number((await client.getText("twice")) ?? "0");
    const tallies = await client.collection("tallies").entries().all();
    const declared = tallies.map(([name, { count }]): [string, number] => [name, count]);
    return { stock, twice, marks, own, declared };
  },
});
