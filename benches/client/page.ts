/** Round trips of a page to its database, beside those of a message that comes straight back. */

import { type Client, connect } from "varve/client";

const ROUNDS = 7;

const SINGLE = 400;

const BATCH = 1_000;

/** What was measured: the median of microseconds for one call, and those of all rounds. */
export interface Measured {
  readonly name: string;
  readonly median: number;
  readonly all: readonly number[];
}

const worker = () => new Worker("/worker.js", { type: "module" });

async function measure(
  name: string,
  count: number,
  run: (count: number) => Promise<unknown>,
): Promise<Measured> {
  const all: number[] = [];
  await run(count);
  for (let round = 0; round < ROUNDS; round += 1) {
    const start = performance.now();
    await run(count);
    all.push(((performance.now() - start) * 1_000) / count);
  }
  const median = [...all].sort((a, b) => a - b)[ROUNDS >> 1] as number;
  return { name, median, all };
}

async function one(count: number, call: () => Promise<unknown>): Promise<void> {
  for (let i = 0; i < count; i += 1) await call();
}

const all = (count: number, call: () => Promise<unknown>) =>
  Promise.all(Array.from({ length: count }, call));

/** A worker that posts back what it is posted. */
function echo(): (message: unknown) => Promise<unknown> {
  const program = "onmessage = ({ data }) => postMessage(data)";
  const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
  const other = new Worker(url);
  const waiting: ((message: unknown) => void)[] = [];
  other.onmessage = ({ data }) => waiting.shift()?.(data);
  return (message) =>
    new Promise((resolve) => {
      waiting.push(resolve);
      other.postMessage(message);
    });
}

async function calls(name: string, client: Client): Promise<Measured[]> {
  const value = new Uint8Array(64);
  await client.set("key", value);
  return [
    await measure(`${name}: get, alone`, SINGLE, (count) => one(count, () => client.get("key"))),
    await measure(`${name}: get, pipelined`, BATCH, (count) => all(count, () => client.get("key"))),
    await measure(`${name}: set, alone`, SINGLE, (count) =>
      one(count, () => client.set("key", value)),
    ),
    await measure(`${name}: set, pipelined`, BATCH, (count) =>
      all(count, () => client.set("key", value)),
    ),
  ];
}

async function run(): Promise<Measured[]> {
  const send = echo();
  const message = { id: 1, value: new Uint8Array(64) };
  const measured = [
    await measure("echo, alone", SINGLE, (count) => one(count, () => send(message))),
    await measure("echo, pipelined", BATCH, (count) => all(count, () => send(message))),
  ];
  const own = connect("bench", { worker });
  measured.push(...(await calls("the owner's page", own)));
  const other = connect("bench", { worker });
  measured.push(...(await calls("another tab's owner", other)));
  await other.close();
  await own.close();
  return measured;
}

Object.assign(globalThis, { run });
