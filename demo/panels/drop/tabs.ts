/** The tabs of this panel: their names, and what they send to each other beside the database. */

const NAMES = "varve live drop, tab ";
const IDS = "varve live drop, id ";

/** What follows a prefix in the names of the locks that tabs hold. */
async function held(prefix: string): Promise<Set<string>> {
  const { held: locks = [] } = await navigator.locks.query();
  const names = locks.map(({ name = "" }) => name);
  return new Set(
    names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length)),
  );
}

/** Resolves to whether this tab has the lock now, until it ends. */
function take(lock: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(lock, { ifAvailable: true }, (taken) => {
        resolve(taken !== null);
        return taken === null ? undefined : new Promise(() => {});
      })
      .catch(reject);
  });
}

export interface ThisTab {
  /** The first letter that no other tab has: A to Z, then A1 and so on. */
  name: string;
  /** Unlike the name, never used by another tab. */
  id: string;
  /** Whether other tabs were there first. */
  isLater: boolean;
}

export async function nameThisTab(): Promise<ThisTab> {
  const others = await livingTabs();
  const id = crypto.randomUUID();
  await take(IDS + id);
  for (let i = 0; ; i++) {
    const round = Math.floor(i / 26);
    const name = String.fromCharCode(65 + (i % 26)) + (round === 0 ? "" : round);
    if (await take(NAMES + name)) return { name, id, isLater: others.size > 0 };
  }
}

/** The ids of all tabs that are there now. */
export function livingTabs(): Promise<Set<string>> {
  return held(IDS);
}

/** A time that all tabs share, in milliseconds. */
export function sharedNow(): number {
  return performance.timeOrigin + performance.now();
}

const channel = new BroadcastChannel("varve live drop");

/** Asks the tab whose worker owns the file to kill it. Returns the time, which all other tabs get. */
export function sendKill(): number {
  const at = sharedNow();
  channel.postMessage(at);
  return at;
}

export function onKill(listener: (at: number) => void): void {
  channel.onmessage = ({ data }: MessageEvent<number>) => listener(data);
}
