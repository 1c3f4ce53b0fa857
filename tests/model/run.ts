/** Runs a program on a database and on its model, and stops where the two differ. */

import {
  AMPLE,
  BAD_ARGUMENT,
  codeOf,
  equal,
  Mismatch,
  OUT_OF_MEMORY,
  REENTRANCY,
  refused,
  Undone,
  undone,
} from "./checks.js";
import { type Environment, Machine } from "./machine.js";
import { batch, copy, get, getEntry, getMany, getText, pin, remove, set, unpin } from "./points.js";
import type { Operation, Program } from "./program.js";
import { begin, clear, count, leave, scan, step } from "./ranges.js";
import { createWithSegments } from "./segments.js";
import { compareAll, crash, recover, reopen, yields } from "./turns.js";
import { update } from "./update.js";

/** The place and kind of a program's failure. */
export interface Failure {
  /** The index of the failed operation; the number of operations for a failure at the end. */
  readonly at: number;
  readonly what: string;
  readonly cause: unknown;
}

/** Runs a program to its end, or to its first failure. */
export async function run(
  program: Program,
  environment: Environment,
): Promise<Failure | undefined> {
  const machine = new Machine(program.setting, environment);
  let at = 0;
  try {
    await start(machine);
    for (; at < program.operations.length; at++) {
      // Not every operation yields: several form a turn.
      const waiting = perform(machine, program.operations[at] as Operation);
      if (waiting !== undefined) await waiting;
    }
    machine.faulty?.heal();
    await perform(machine, { do: "reopen" });
    await machine.db.close();
    return undefined;
  } catch (cause) {
    const what = cause instanceof Mismatch ? cause.message : `it threw ${String(cause)}`;
    return { at, what, cause };
  } finally {
    await machine.db?.close().catch(() => undefined);
    await machine.storage.destroy?.(machine.name).catch(() => undefined);
  }
}

async function start(machine: Machine): Promise<void> {
  const { storage, name, setting } = machine;
  if (setting.segmentLog2 !== 20) await createWithSegments(storage, name, setting.segmentLog2);
  machine.db = await machine.open();
  equal("the count of a new database", machine.db.count(), 0);
}

/** Runs an operation at the top level of the program. */
function perform(
  machine: Machine,
  operation: Operation,
  isRepeated = false,
): Promise<void> | undefined {
  const before = machine.faulty === undefined ? undefined : machine.model.state();
  const failed = async (error: unknown): Promise<void> => {
    // The call was not done, as its error says, and succeeds after the end of the turn.
    const isFull = codeOf(error) === OUT_OF_MEMORY && machine.setting.memory < AMPLE;
    if (isFull && !isRepeated) {
      await yields(machine, "a task");
      return perform(machine, operation, true);
    }
    if (before === undefined || error instanceof Mismatch) throw error;
    return recover(machine, before, error);
  };
  try {
    const waiting = act(machine, operation);
    if (waiting !== undefined) return waiting.then(() => machine.checkAfter()).catch(failed);
    machine.checkAfter();
    return undefined;
  } catch (error) {
    return failed(error);
  }
}

function act(machine: Machine, operation: Operation): Promise<void> | undefined {
  switch (operation.do) {
    case "yield":
      return yields(machine, operation.to);
    case "reopen":
      return reopen(machine);
    case "crash":
      return crash(machine, operation.on === "the survivor");
    default:
      actAtOnce(machine, operation);
      return undefined;
  }
}

/** Runs an operation that does not yield, possibly within a transaction. */
function actAtOnce(machine: Machine, operation: Operation): void {
  const { db, model } = machine;
  switch (operation.do) {
    case "get":
      get(machine, operation);
      break;
    case "getText":
      getText(machine, operation);
      break;
    case "has":
      machine.agree("has", db.has(machine.key(operation)), model.has(operation.key));
      break;
    case "getEntry":
      getEntry(machine, operation);
      break;
    case "getMany":
      getMany(machine, operation);
      break;
    case "set":
      set(machine, operation);
      break;
    case "copy":
      copy(machine, operation);
      break;
    case "delete":
      remove(machine, operation);
      break;
    case "updateIf":
      update(machine, operation);
      break;
    case "batch":
      batch(machine, operation);
      break;
    case "transaction":
      transaction(machine, operation);
      break;
    case "count":
      count(machine, operation.range);
      break;
    case "clear":
      clear(machine, operation.range);
      break;
    case "scan":
      scan(machine, operation.range, operation.of);
      break;
    case "walk":
      begin(machine, operation);
      break;
    case "step":
      step(machine, operation);
      break;
    case "leave":
      leave(machine, operation.slot);
      break;
    case "pin":
      pin(machine, operation);
      break;
    case "unpin":
      unpin(machine, operation.slot);
      break;
    case "commit":
      outside(machine, () => db.commit());
      break;
    case "flush":
      outside(machine, () => db.flush());
      break;
    case "compare":
      compareAll(machine);
      break;
    case "fault":
      machine.faulty?.arm(operation);
      break;
    default:
      throw new Error(`${operation.do} cannot be done here`);
  }
}

function transaction(
  machine: Machine,
  { body, end }: Extract<Operation, { do: "transaction" }>,
): void {
  const before = machine.model.state();
  const { depth } = machine;
  const token = {};
  const call = (): unknown =>
    machine.db.transaction((tx): object => {
      equal("what a transaction is given", tx, machine.db);
      machine.depth = depth + 1;
      for (const operation of body) actAtOnce(machine, operation);
      if (end === "throw") throw new Undone();
      return end === "return" ? token : (Promise.resolve() as object);
    });
  let kept = false;
  try {
    if (end === "return") {
      equal("what a transaction gives", call(), token);
      kept = true;
    } else if (end === "throw") {
      undone(call);
    } else {
      refused(BAD_ARGUMENT, call);
      machine.expireViews();
    }
  } finally {
    machine.depth = depth;
    if (!kept) machine.restore(before);
  }
}

/** Operations that are impossible within a transaction. */
function outside(machine: Machine, call: () => void): void {
  if (machine.depth > 0) {
    refused(REENTRANCY, call);
    return;
  }
  call();
  machine.views.checkAll(machine.turn);
}
