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

/** A figure is the mean of this many calls, or of fewer if they take longer than `CALLS_MS`. */
const CALLS = 200;
const CALLS_MS = 200;

/** Concurrent writes, unless they are sent one by one. */
const CONCURRENT_WRITES = 64;

const VALUE = new Uint8Array(64);

type Call = () => Promise<unknown>;

/**
 * Calls before the measured ones: the first calls after a thousand concurrent ones include their garbage
 * collection.
 */
const WARM_UP_CALLS = 50;

/** Sends the calls one after the other. */
async function alone(call: Call): Promise<number> {
  for (let i = 0; i < WARM_UP_CALLS; i += 1) await call();
  const start = performance.now();
  let count = 0;
  for (; count < CALLS && performance.now() < start + CALLS_MS; count += 1) await call();
  return ((performance.now() - start) * 1_000) / count;
}

/** Sends all calls in one task. */
async function pipelined(call: Call, count: number): Promise<number> {
  const start = performance.now();
  await Promise.all(Array.from({ length: count }, call));
  return ((performance.now() - start) * 1_000) / count;
}

/** Measures all kinds in turn, so that a disturbance affects all of them. */
async function measureInTurn(
  kinds: Record<string, Call>,
  rounds: number,
  width: number,
): Promise<Times> {
  const times: Times = {};
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, call] of Object.entries(kinds)) {
      const figures = { alone: await alone(call), pipelined: await pipelined(call, width) };
      for (const [mode, us] of Object.entries(figures)) {
        times[`${name}, ${mode}`] ??= [];
        // The first round warms up.
        if (round >= 0) times[`${name}, ${mode}`]?.push(us);
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
  const answerTo = (target) => ({ data }) => {
    if (data.writes) at += handle.write(record, { at: at % (63 << 20) });
    target.postMessage(data);
  };
  onmessage = answerTo(globalThis);
  port.onmessage = answerTo(port);
  postMessage(0);
};`;

function echoWorker(): Worker {
  return new Worker(URL.createObjectURL(new Blob([ECHO], { type: "text/javascript" })));
}

/**
 * A shared worker that transfers ports to the tab whose echo worker answers: tabs of different processes have
 * no other way.
 */
const PORT_RELAY =
  "data:text/javascript,let echo;onconnect=({ports:[page]})=>{page.onmessage=({ports})=>" +
  "{if(ports[0])echo.postMessage(0,ports);else echo=page}}";

function portRelay(): MessagePort {
  return new SharedWorker(PORT_RELAY).port;
}

/** Lets another tab use an echo worker of this one. */
function shareEcho(): void {
  const worker = echoWorker();
  const to = portRelay();
  to.onmessage = ({ ports }) => worker.postMessage(0, [...ports]);
  to.postMessage(0);
}

/** `isRemote`: the echo by a port comes from another tab's worker, as the answers of a remote owner do. */
async function echo(isRemote: boolean): Promise<Record<string, Call>> {
  const worker = echoWorker();
  const { port1, port2 } = new MessageChannel();
  const remote = new MessageChannel();
  if (isRemote) portRelay().postMessage(0, [remote.port2]);
  const port = isRemote ? remote.port1 : port1;
  const waiting: ((message: unknown) => void)[] = [];
  const receive = ({ data }: MessageEvent) => waiting.shift()?.(data);
  worker.onmessage = receive;
  port.onmessage = receive;
  const send = (target: Worker | MessagePort, message: object) =>
    new Promise((resolve) => {
      waiting.push(resolve);
      target.postMessage(message);
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
const ANSWER_TIMEOUT_MS = 5_000;

/** Sends one write after the other and records the longest time without an answer. */
class GapRecorder {
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
    await Promise.race([
      this.over,
      new Promise((resolve) => setTimeout(resolve, ANSWER_TIMEOUT_MS)),
    ]);
    return Math.max(this.longest, performance.now() - this.last);
  }
}

/** Writes for `ms` milliseconds and returns the number of answers. */
async function write(store: Store, ms: number, writers: number): Promise<number> {
  const end = performance.now() + ms;
  let count = 0;
  const writer = async () => {
    while (performance.now() < end) {
      await store.set();
      // A write that was in flight at the end is not counted.
      if (performance.now() < end) count += 1;
    }
  };
  await Promise.all(Array.from({ length: writers }, writer));
  return count;
}

/** Offers the tab's methods to the driver. */
export function offerTab(open: () => Promise<Store>): void {
  let store: Store;
  let gap: GapRecorder;
  const tab = {
    /** Milliseconds from the beginning of this page's load until the store has answered. */
    async first(): Promise<number> {
      store = await open();
      await store.set();
      await store.get();
      return performance.now();
    },
    /** `width`: the number of calls in one task. */
    async trips(rounds: number, width: number, isRemote: boolean): Promise<Times> {
      const calls = { get: () => store.get(), set: () => store.set() };
      return measureInTurn({ ...(await echo(isRemote)), ...calls }, rounds, width);
    },
    shareEcho,
    write: (ms: number, alone: boolean) => write(store, ms, alone ? 1 : CONCURRENT_WRITES),
    owns: () => store.owns(),
    startGap() {
      gap = new GapRecorder(store);
    },
    endGap: () => gap.end(),
  };
  Object.assign(globalThis, { tab });
}
