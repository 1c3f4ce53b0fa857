/** A tab of the benchmark: it opens a store, measures calls, and sends calls while other tabs are measured. */

/** A store in a tab: every call resolves when the store has answered. */
export interface Store {
  get(): Promise<unknown>;
  set(): Promise<unknown>;
  /** Whether this tab is the owner, for stores where one tab has the file. */
  owns(): boolean;
}

/** Microseconds per call, one figure for each round. */
export type Times = Record<string, number[]>;

/** A figure is the mean of this many calls, or of fewer if they take longer than `ALONE_MS`. */
const ALONE = 200;
const ALONE_MS = 200;

/** Concurrent writes, unless they are sent one by one. */
const LANES = 64;

const VALUE = new Uint8Array(64);

type Call = () => Promise<unknown>;

/**
 * Calls before the measured ones: the first calls after a thousand concurrent ones include their garbage
 * collection.
 */
const BEFORE = 50;

/** Sends the calls one after the other. */
async function alone(call: Call): Promise<number> {
  for (let i = 0; i < BEFORE; i += 1) await call();
  const start = performance.now();
  let count = 0;
  for (; count < ALONE && performance.now() < start + ALONE_MS; count += 1) await call();
  return ((performance.now() - start) * 1_000) / count;
}

/** Sends all calls in one task. */
async function pipelined(call: Call, count: number): Promise<number> {
  const start = performance.now();
  await Promise.all(Array.from({ length: count }, call));
  return ((performance.now() - start) * 1_000) / count;
}

/** Measures all kinds in turn, so that a disturbance affects all of them. */
async function interleaved(
  kinds: Record<string, Call>,
  rounds: number,
  width: number,
): Promise<Times> {
  const times: Times = {};
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, call] of Object.entries(kinds)) {
      const figures = { alone: await alone(call), pipelined: await pipelined(call, width) };
      for (const [way, us] of Object.entries(figures)) {
        times[`${name}, ${way}`] ??= [];
        // The first round warms up.
        if (round >= 0) times[`${name}, ${way}`]?.push(us);
      }
    }
  }
  return times;
}

/**
 * A worker that echoes messages, by itself or through a port, and on request after appending as many bytes as
 * a `set` writes.
 */
const ECHO = `
const record = new Uint8Array(248);
const file = navigator.storage.getDirectory()
  .then((root) => root.getFileHandle(crypto.randomUUID(), { create: true }))
  .then((handle) => handle.createSyncAccessHandle());
let at = 0;
onmessage = async ({ data, ports: [port] }) => {
  const handle = await file;
  handle.truncate(64 << 20);
  const by = (way) => ({ data }) => {
    if (data.writes) at += handle.write(record, { at: at % (63 << 20) });
    way.postMessage(data);
  };
  onmessage = by(globalThis);
  port.onmessage = by(port);
  postMessage(0);
};`;

function echoWorker(): Worker {
  return new Worker(URL.createObjectURL(new Blob([ECHO], { type: "text/javascript" })));
}

/**
 * A shared worker that transfers ports to the tab whose echo worker answers: tabs of different processes have
 * no other way.
 */
const COURIER =
  "data:text/javascript,let lender;onconnect=({ports:[page]})=>{page.onmessage=({ports})=>" +
  "{if(ports[0])lender.postMessage(0,ports);else lender=page}}";

function courier(): MessagePort {
  return new SharedWorker(COURIER).port;
}

/** Lets another tab use an echo worker of this one. */
function lend(): void {
  const worker = echoWorker();
  const to = courier();
  to.onmessage = ({ ports }) => worker.postMessage(0, [...ports]);
  to.postMessage(0);
}

/** `isRemote`: the echo by a port comes from another tab's worker, as the answers of a remote owner do. */
async function echo(borrows: boolean): Promise<Record<string, Call>> {
  const worker = echoWorker();
  const { port1, port2 } = new MessageChannel();
  const lent = new MessageChannel();
  if (borrows) courier().postMessage(0, [lent.port2]);
  const port = borrows ? lent.port1 : port1;
  const waiting: ((message: unknown) => void)[] = [];
  const hear = ({ data }: MessageEvent) => waiting.shift()?.(data);
  worker.onmessage = hear;
  port.onmessage = hear;
  const send = (way: Worker | MessagePort, message: object) =>
    new Promise((resolve) => {
      waiting.push(resolve);
      way.postMessage(message);
    });
  await new Promise((resolve) => {
    waiting.push(resolve);
    worker.postMessage(0, [port2]);
  });
  return {
    echo: () => send(worker, { id: 1, value: VALUE }),
    "echo by a port": () => send(port, { id: 1, value: VALUE }),
    "echo after a write": () => send(worker, { id: 1, value: VALUE, writes: true }),
  };
}

/** How long to wait for an answer that may never come. */
const PATIENCE_MS = 5_000;

/** Sends one write after the other and records the longest time without an answer. */
class Pulse {
  private isOver = false;
  private longest = 0;
  private last = performance.now();
  private readonly over: Promise<void>;

  constructor(store: Store) {
    this.over = this.run(store);
  }

  private async run(store: Store): Promise<void> {
    while (!this.isOver) {
      // Calls that fail during a change of owners are retried, as a program would.
      const answered = await store.set().then(
        () => true,
        () => false,
      );
      const now = performance.now();
      if (!answered) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        continue;
      }
      this.longest = Math.max(this.longest, now - this.last);
      this.last = now;
    }
  }

  async end(): Promise<number> {
    this.isOver = true;
    await Promise.race([this.over, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
    return Math.max(this.longest, performance.now() - this.last);
  }
}

/** Writes for `ms` milliseconds and returns the number of answers. */
async function write(store: Store, ms: number, lanes: number): Promise<number> {
  const end = performance.now() + ms;
  let count = 0;
  const lane = async () => {
    while (performance.now() < end) {
      await store.set();
      // A write that was in flight at the end is not counted.
      if (performance.now() < end) count += 1;
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return count;
}

/** Offers the tab's methods to the driver. */
export function offer(open: () => Promise<Store>): void {
  let store: Store;
  let pulse: Pulse;
  const tab = {
    /** Milliseconds from the beginning of this page's load until the store has answered. */
    async first(): Promise<number> {
      store = await open();
      await store.set();
      await store.get();
      return performance.now();
    },
    /** `width`: the number of calls in one task. */
    async trips(rounds: number, width: number, borrows: boolean): Promise<Times> {
      const calls = { get: () => store.get(), set: () => store.set() };
      return interleaved({ ...(await echo(borrows)), ...calls }, rounds, width);
    },
    lend,
    write: (ms: number, alone: boolean) => write(store, ms, alone ? 1 : LANES),
    owns: () => store.owns(),
    pulse() {
      pulse = new Pulse(store);
    },
    pulsed: () => pulse.end(),
  };
  Object.assign(globalThis, { tab });
}
