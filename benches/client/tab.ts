/** A tab of the benchmark: it opens a store, measures calls, and keeps calling while others measure. */

/** A store as a tab has it: every call resolves when the store has answered. */
export interface Store {
  get(): Promise<unknown>;
  set(): Promise<unknown>;
  /** Whether this tab has the file, where one tab has it for all. */
  owns(): boolean;
}

/** Microseconds of one call, a figure for each round. */
export type Times = Record<string, number[]>;

/** So many calls make one figure, or as many as there is time for. */
const ALONE = 200;
const ALONE_MS = 200;

/** Writes under way at once, where they are not sent one by one. */
const LANES = 64;

const VALUE = new Uint8Array(64);

type Call = () => Promise<unknown>;

/**
 * So many come before those that are measured: the first after a thousand at once, of whatever kind, wait for
 * what those have left to collect.
 */
const BEFORE = 50;

/** One after the other. */
async function alone(call: Call): Promise<number> {
  for (let i = 0; i < BEFORE; i += 1) await call();
  const start = performance.now();
  let count = 0;
  for (; count < ALONE && performance.now() < start + ALONE_MS; count += 1) await call();
  return ((performance.now() - start) * 1_000) / count;
}

/** All of them in one task. */
async function pipelined(call: Call, count: number): Promise<number> {
  const start = performance.now();
  await Promise.all(Array.from({ length: count }, call));
  return ((performance.now() - start) * 1_000) / count;
}

/** All kinds in turn, so that what disturbs one of them disturbs the others too. */
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

/** What comes straight back, and what comes back when as much as a `set` writes was appended to a file. */
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

/** Carries ports to the tab that lends its worker, which is in another process. */
const COURIER =
  "data:text/javascript,let lender;onconnect=({ports:[page]})=>{page.onmessage=({ports})=>" +
  "{if(ports[0])lender.postMessage(0,ports);else lender=page}}";

function courier(): MessagePort {
  return new SharedWorker(COURIER).port;
}

/** Has another tab echoed to by a worker of this one. */
function lend(): void {
  const worker = echoWorker();
  const to = courier();
  to.onmessage = ({ ports }) => worker.postMessage(0, [...ports]);
  to.postMessage(0);
}

/** `borrows`: what answers by a port is what another tab has lent, as the owner is another's. */
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

/** Nobody waits longer for an answer that does not come. */
const PATIENCE_MS = 5_000;

/** The longest time in which nothing was answered to one who asks all the time. */
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
      // What a change of owners makes fail is asked for again, as a program would.
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

/** Writes for so long, and says how often it was answered. */
async function write(store: Store, ms: number, lanes: number): Promise<number> {
  const end = performance.now() + ms;
  let count = 0;
  const lane = async () => {
    while (performance.now() < end) {
      await store.set();
      // One that was under way at the end is not one of this time.
      if (performance.now() < end) count += 1;
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return count;
}

/** What the page can be asked for from outside. */
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
    /** `width`: so many calls in one task. */
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
