/** Shrinks a failing program as far as it still fails. */

import type { Operation, Program, Setting, Update } from "./program.js";
import type { Value } from "./values.js";

/** The limits of shrinking. */
export interface Limits {
  readonly tries: number;
  readonly ms: number;
}

/** The smallest program found for which `fails` holds, as it does for `program`. */
export async function shrink(
  program: Program,
  fails: (smaller: Program) => Promise<boolean>,
  limits: Limits,
): Promise<Program> {
  const shrinker = new Shrinker(program, fails, limits);
  await shrinker.run();
  return shrinker.best;
}

class Shrinker {
  best: Program;
  private readonly fails: (smaller: Program) => Promise<boolean>;
  private tries: number;
  private readonly end: number;

  constructor(
    program: Program,
    fails: (smaller: Program) => Promise<boolean>,
    { tries, ms }: Limits,
  ) {
    this.best = program;
    this.fails = fails;
    this.tries = tries;
    this.end = performance.now() + ms;
  }

  async run(): Promise<void> {
    let before: Program;
    do {
      before = this.best;
      await this.leaveOut();
      await this.simplify();
      await this.relax();
    } while (this.best !== before && !this.isOver);
  }

  private get isOver(): boolean {
    return this.tries <= 0 || performance.now() > this.end;
  }

  private async accept(operations: readonly Operation[], setting = this.best.setting) {
    if (this.isOver) return false;
    this.tries -= 1;
    const candidate = { ...this.best, operations, setting };
    if (!(await this.fails(candidate))) return false;
    this.best = candidate;
    return true;
  }

  /** Removes parts of the list: halves, quarters, and in the end single operations. */
  private async leaveOut(): Promise<void> {
    let part = Math.ceil(this.best.operations.length / 2);
    for (;;) {
      // From the end, because later operations depend on earlier ones and not the reverse.
      for (let to = this.best.operations.length; to > 0; to -= part) {
        const from = Math.max(0, to - part);
        const { operations } = this.best;
        await this.accept([...operations.slice(0, from), ...operations.slice(to)]);
      }
      if (part <= 1 || this.isOver) return;
      part = Math.ceil(part / 2);
    }
  }

  /** Replaces each operation by a simpler one. */
  private async simplify(): Promise<void> {
    for (let at = this.best.operations.length - 1; at >= 0; at--) {
      for (;;) {
        const operation = this.best.operations[at];
        if (operation === undefined || !(await this.simplifyOne(at, operation))) break;
      }
    }
  }

  private async simplifyOne(at: number, operation: Operation): Promise<boolean> {
    for (const instead of simpler(operation)) {
      const { operations } = this.best;
      if (
        await this.accept([...operations.slice(0, at), ...instead, ...operations.slice(at + 1)])
      ) {
        return true;
      }
    }
    return false;
  }

  /** Replaces options by their defaults. */
  private async relax(): Promise<void> {
    const ordinary: Partial<Setting>[] = [
      { strictViews: false },
      { durability: "written" },
      { ordered: true },
      { memory: 64 * 1_048_576 },
      { segmentLog2: 20 },
    ];
    for (const some of ordinary) {
      const { setting, operations } = this.best;
      const changed = Object.entries(some).some(
        ([option, value]) => setting[option as keyof Setting] !== value,
      );
      if (changed) await this.accept(operations, { ...setting, ...some });
    }
  }
}

/** Replacements for an operation, the boldest first. */
function* simpler(operation: Operation): Generator<Operation[]> {
  switch (operation.do) {
    case "transaction":
      yield [...operation.body];
      for (const body of fewer(operation.body)) yield [{ ...operation, body }];
      yield* inBody(operation);
      if (operation.end !== "throw" && operation.end !== "return") {
        yield [{ ...operation, end: "throw" }];
      }
      break;
    case "batch":
      if (operation.bad) yield [{ ...operation, bad: false }];
      for (const steps of fewer(operation.steps)) yield [{ ...operation, steps }];
      break;
    case "getMany":
      for (const keys of fewer(operation.keys)) yield [{ ...operation, keys }];
      break;
    case "step":
      if (operation.times > 1) {
        yield [{ ...operation, times: 1 }];
        yield [{ ...operation, times: Math.ceil(operation.times / 2) }];
        yield [{ ...operation, times: operation.times - 1 }];
      }
      break;
    case "updateIf":
      yield* simplerUpdate(operation);
      break;
    case "fault":
      if (operation.after > 0) yield [{ ...operation, after: 0 }];
      if (operation.times > 1) yield [{ ...operation, times: 1 }];
      break;
    case "yield":
      if (operation.to !== "a microtask") yield [{ ...operation, to: "a microtask" }];
      break;
    default:
  }
  yield* without(operation, "keep", "ifVersion", "pinned", "predicate", "predicateKey");
  yield* without(operation, "valueIfMissing");
  if ("range" in operation && operation.range !== undefined) {
    for (const option of Object.keys(operation.range)) {
      const { [option as "gt"]: _, ...range } = operation.range;
      yield [{ ...operation, range } as Operation];
    }
  }
  if ("value" in operation) {
    for (const value of smallerValues(operation.value)) yield [{ ...operation, value }];
  }
  if ("form" in operation && operation.form !== "text") yield [{ ...operation, form: "text" }];
  if ("as" in operation && operation.as !== "bytes") yield [{ ...operation, as: "bytes" }];
}

function* inBody(operation: Extract<Operation, { do: "transaction" }>): Generator<Operation[]> {
  for (const [i, one] of operation.body.entries()) {
    for (const instead of simpler(one)) {
      const body = [...operation.body.slice(0, i), ...instead, ...operation.body.slice(i + 1)];
      yield [{ ...operation, body }];
    }
  }
}

function* simplerUpdate(update: Update): Generator<Operation[]> {
  const { change } = update;
  if (change.how !== "poke") yield [{ ...update, change: { how: "poke", at: 0, byte: 7 } }];
  if (change.how === "return") {
    for (const value of smallerValues(change.value))
      yield [{ ...update, change: { ...change, value } }];
    if (change.form !== "bytes") yield [{ ...update, change: { ...change, form: "bytes" } }];
  }
  for (const reads of fewer(update.reads)) yield [{ ...update, reads }];
  if (update.valueIfMissing !== undefined) {
    for (const valueIfMissing of smallerValues(update.valueIfMissing)) {
      yield [{ ...update, valueIfMissing }];
    }
  }
}

/** The operation without one of its options. */
function* without(operation: Operation, ...options: string[]): Generator<Operation[]> {
  for (const option of options) {
    if (!(option in operation)) continue;
    const { [option as "do"]: _, ...rest } = operation;
    yield [rest as Operation];
  }
}

/** The list without some of its parts. */
function* fewer<T>(list: readonly T[]): Generator<T[]> {
  for (let part = list.length; part >= 1; part = Math.floor(part / 2)) {
    for (let to = list.length; to > 0; to -= part) {
      yield [...list.slice(0, Math.max(0, to - part)), ...list.slice(to)];
    }
  }
}

function* smallerValues(value: Value): Generator<Value> {
  if (value.kind !== "bytes") yield { ...value, kind: "bytes" };
  const { size } = value;
  const sizes = new Set([8, size >> 1, size - (size >> 2), size - (size >> 4), size - 1]);
  for (const smaller of sizes)
    if (smaller < size && smaller >= 0) yield { ...value, size: smaller };
}
