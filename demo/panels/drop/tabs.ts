/** The tabs of this panel: their names, and what they send to each other beside the database. */

const LOCK = "varve live drop, tab ";

async function heldNames(): Promise<Set<string>> {
  const { held = [] } = await navigator.locks.query();
  const names = held.flatMap(({ name = "" }) =>
    name.startsWith(LOCK) ? [name.slice(LOCK.length)] : [],
  );
  return new Set(names);
}

/** Resolves to whether this tab has the name now, until it ends. */
function take(name: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(LOCK + name, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        return lock === null ? undefined : new Promise(() => {});
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
  const others = await heldNames();
  for (let i = 0; ; i++) {
    const round = Math.floor(i / 26);
    const name = String.fromCharCode(65 + (i % 26)) + (round === 0 ? "" : round);
    if (await take(name)) return { name, id: crypto.randomUUID(), isLater: others.size > 0 };
  }
}

/** The names of all tabs that are there now. */
export const livingTabs: () => Promise<Set<string>> = heldNames;

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
