/** Operations that yield: the end of a turn, closing and opening, crashes, and earlier failures. */

import { CLOSED, codeOf, equal, Mismatch, refused } from "./checks.js";
import { FaultyStorage } from "./faulty.js";
import type { Machine } from "./machine.js";
import type { State } from "./model.js";
import type { Operation } from "./program.js";
import { scan } from "./ranges.js";
import { same } from "./values.js";

/** The size of the engine's record of a gap between segments, and the most of them that a close writes. */
const GAP_RECORD = 64;
const MANY_GAPS = 64;

type To = Extract<Operation, { do: "yield" }>["to"];

export async function yields(machine: Machine, to: To): Promise<void> {
  if (to === "a microtask") await null;
  else if (to === "committed") await machine.db.committed;
  else if (to === "flushed") await machine.db.flushed;
  else if (to === "compacted") await machine.db.compact();
  else await new Promise((resolve) => setTimeout(resolve));
  machine.endTurn();
  if (machine.setting.strictViews) machine.views.checkExpired("after a yield", machine.turn, true);
  else machine.views.checkAll(machine.turn);
  machine.checkPins();
  const { pendingBytes, unflushed } = machine.db.stats();
  if (to !== "a microtask" && to !== "a task") equal("pending bytes", pendingBytes, 0);
  if (to === "flushed") equal("unflushed", unflushed, false);
  checkMemory(machine);
}

/** Checks that memory is bounded between turns, whatever the size of the database. */
function checkMemory({ db, setting, pins }: Machine): void {
  // A turn of buffered writes ends with a timer.
  if (setting.durability === "buffered") return;
  const { memoryBytes } = db.stats();
  const segment = 1 << setting.segmentLog2;
  const budget = Math.max(setting.memory, 4 * segment);
  const pinned = pins.reduce((sum, pin) => sum + (pin?.bytes.length ?? 0), 0);
  // Large values may take a quarter more. Buffers above pinned ones may have to stay.
  const limit = pinned > 0 ? 2 * budget + pinned : budget * 1.25;
  const allowed = limit + 4 * segment + 65_536;
  if (memoryBytes > allowed) {
    throw new Mismatch(`${memoryBytes} bytes of memory are held, more than ${allowed}`);
  }
}

export async function reopen(machine: Machine): Promise<void> {
  compareAll(machine);
  // Emptied segments count as live until the commit.
  machine.db.commit();
  const { liveBytes } = machine.db.stats();
  await machine.db.close();
  closed(machine);
  machine.endTurn();
  machine.db = await machine.open();
  machine.forgetVersions();
  equal("recovery.wasClean", machine.db.recovery.wasClean, true);
  equal("recovery.tornBytes", machine.db.recovery.tornBytes, 0);
  checkMemory(machine);
  // The engine's records of freed segments may appear and disappear with the close.
  const noted = machine.db.stats().liveBytes - liveBytes;
  if (noted % GAP_RECORD !== 0 || Math.abs(noted) > MANY_GAPS * GAP_RECORD) {
    throw new Mismatch(`liveBytes are ${noted} more after reopening`);
  }
  compareAll(machine);
}

/** Crashes: another program opens the present contents of the file. */
export async function crash(machine: Machine, survives: boolean): Promise<void> {
  const { db, storage, written } = machine;
  if (!(storage instanceof FaultyStorage)) return;
  const now = machine.model.state();
  machine.storage = storage.crashed();
  if (survives) {
    await db.close().catch((error) => refuseUnlessStruck(storage, error));
    if (storage.struck) machine.reported.length = 0;
    closed(machine);
  }
  machine.db = await machine.open();
  machine.model.restore(written);
  machine.forgetVersions();
  compareAll(machine);
  machine.endTurn();
  if (survives) return;
  await machine.db.close();
  [machine.db, machine.storage] = [db, storage];
  machine.model.restore(now);
  machine.forgetVersions();
}

/** The state of a database after its close. */
function closed({ views, pins, walks, past, setting }: Machine): void {
  views.checkExpired("after closing", past, setting.strictViews);
  for (const [slot, pinned] of pins.entries()) {
    if (pinned !== undefined) refused(CLOSED, () => pinned.pin.bytes);
    pins[slot] = undefined;
  }
  for (const [slot, walk] of walks.entries()) {
    if (walk !== undefined) refused(CLOSED, () => walk.stepAfterClose());
    walks[slot] = undefined;
  }
}

// ---------------------------------------------------------------- failures

/** The failure of a call whose file fails. */
const FAILURES: readonly unknown[] = [
  "VARVE_QUOTA_EXCEEDED",
  "VARVE_STORAGE",
  "VARVE_DATABASE_POISONED",
];

/**
 * Checks the state after a failed operation. It has to be one of three: the state before it, the state after
 * it, or the written state, if its whole commit is lost. The program then continues.
 */
export async function recover(machine: Machine, before: State, error: unknown): Promise<void> {
  const { faulty, model } = machine;
  if (faulty === undefined) throw error;
  refuseUnlessStruck(faulty, error);
  faulty.heal();
  machine.expireViews();
  machine.reported.length = 0;
  machine.depth = 0;
  const candidates = [model.state(), before, machine.written];
  let opened = false;
  if (await isDown(machine)) {
    // The database is closed, possibly with the same error, and opened again.
    await machine.db.close().catch((again) => {
      if (!FAILURES.includes(codeOf(again))) throw again;
    });
    machine.endTurn();
    closed(machine);
    machine.db = await machine.open();
    opened = true;
  }
  const found = candidates.find((state) => holds(machine, state));
  if (found === undefined) {
    throw new Mismatch(`after ${String(error)} it is neither as it was nor as it would be`);
  }
  machine.restore(found);
  if (opened) machine.forgetVersions();
  compareAll(machine);
  machine.checkAfter();
}

function refuseUnlessStruck(storage: FaultyStorage, error: unknown): void {
  if (!storage.struck || !FAILURES.includes(codeOf(error))) throw error;
}

/** Whether the database is closed, or refuses writes. Consumes a deferred error. */
async function isDown({ db }: Machine): Promise<boolean> {
  for (;;) {
    try {
      return db.stats().poisoned;
    } catch (error) {
      if (codeOf(error) === CLOSED) return true;
      if (!FAILURES.includes(codeOf(error))) throw error;
    }
  }
}

/** Whether the database has exactly these contents, including versions: the same bytes may be written twice. */
function holds({ db, model }: Machine, { entries, size }: State): boolean {
  if (db.count() !== size) return false;
  return entries.every((entry, rank) => {
    const found = db.getEntry(model.keys[rank]?.bytes ?? "");
    if (found === undefined || entry === undefined) return found === entry;
    const { version, above, bytes } = entry;
    const fits = version === undefined ? found.version > above : found.version === version;
    return fits && same(found.value, bytes);
  });
}

// ---------------------------------------------------------------- comparisons

/** All entries by key, in order. */
export function compareAll(machine: Machine): void {
  const { db, model, setting } = machine;
  equal("count", db.count(), model.size);
  for (const rank of model.keys.keys()) {
    const entry = model.get(rank);
    const found = db.getEntry(machine.keyAt(rank).bytes);
    machine.shows(rank, found?.value, "getEntry");
    if (entry !== undefined) machine.sees(entry, found?.version as number);
  }
  if (setting.ordered) scan(machine, {}, "entries as bytes");
}
