/** Prints programs as readable lists of calls that can be pasted. */

import type { Key } from "./keys.js";
import type { Change, Form, Of, Operation, Program, RankRange, Step, Update } from "./program.js";
import type { Value } from "./values.js";

/** The program, with one call per line. */
export function print({ setting, operations }: Program): string {
  const { durability, strictViews, ordered, memory, segmentLog2, keys } = setting;
  const options = JSON.stringify({ durability, strictViews, ordered, memory });
  const segments = segmentLog2 === 20 ? "" : ` // on segments of ${1 << segmentLog2} bytes`;
  const printer = new Printer(keys);
  const lines = operations.flatMap((operation) => printer.lines(operation));
  return [`const db = await open(name, ${options});${segments}`, ...lines].join("\n");
}

class Printer {
  private readonly keys: readonly Key[];

  constructor(keys: readonly Key[]) {
    this.keys = keys;
  }

  /** The lines of one operation. */
  lines(operation: Operation): string[] {
    switch (operation.do) {
      case "get":
        return [`${kept(operation.keep)}db.get(${this.key(operation)});`];
      case "getText":
      case "has":
      case "getEntry":
      case "delete":
        return [`db.${operation.do}(${this.key(operation)});`];
      case "getMany":
        return [`${kept(operation.keep)}db.getMany([${this.names(operation.keys)}]);`];
      case "set":
        return [this.set(operation)];
      case "copy":
        return [`db.set(${this.name(operation.to)}, ${this.source(operation)});`];
      case "updateIf":
        return this.update(operation);
      case "batch":
        return this.batch(operation.steps, operation.bad);
      case "transaction":
        return this.transaction(operation);
      case "count":
      case "clear":
        return [`db.${operation.do}(${operation.range ? this.range(operation.range) : ""});`];
      case "scan":
        return [`[...${this.iteration(operation)}];`];
      case "walk":
        return [`walk${operation.slot} = ${this.iteration(operation)}[Symbol.iterator]();`];
      case "step": {
        const times = operation.times === 1 ? "" : ` // ${operation.times} times`;
        return [`${kept(operation.keep)}walk${operation.slot}?.next();${times}`];
      }
      case "leave":
        return [`walk${operation.slot}?.return();`];
      case "pin":
        return [`pin${operation.slot} = db.pin(${this.key(operation)});`];
      case "unpin":
        return [`pin${operation.slot}?.dispose();`];
      case "commit":
      case "flush":
        return [`db.${operation.do}();`];
      case "compare":
        return ["// all keys are compared"];
      case "yield":
        return [yields(operation.to)];
      case "reopen":
        return ["await db.close(); db = await open(name, options);"];
      case "fault": {
        const { call, harm, after, times } = operation;
        return [`// of the next calls (${call}) ${times} fail after ${after}: ${harm}`];
      }
      case "crash":
        return [`// it crashes, and continues with ${operation.on}`];
    }
  }

  private name(rank: number): string {
    return this.keys[rank]?.shown ?? `key ${rank}`;
  }

  private names(ranks: readonly number[]): string {
    return ranks.map((rank) => this.name(rank)).join(", ");
  }

  private key({ key, form }: { key: number; form: Form }): string {
    const name = this.name(key);
    const isText = this.keys[key]?.text !== undefined;
    if (form === "text" || !isText) return form === "buffer" ? `${name}.buffer` : name;
    return `bytes(${name})${form === "buffer" ? ".buffer" : ""}`;
  }

  private set({ ifVersion, key, form, value, as }: Extract<Operation, { do: "set" }>): string {
    const target = this.key({ key, form });
    const versions = {
      its: `db.getEntry(${target})?.version ?? 0`,
      another: "another",
      missing: "0",
    };
    const options = ifVersion === undefined ? "" : `, { ifVersion: ${versions[ifVersion]} }`;
    return `db.set(${target}, ${shownValue(value, as)}${options});`;
  }

  private source({ from, pinned }: Extract<Operation, { do: "copy" }>): string {
    const view = `db.get(${this.name(from)})`;
    return pinned === undefined ? view : `pin${pinned}?.bytes ?? ${view}`;
  }

  private update(update: Update): string[] {
    const { change, predicate, predicateKey, valueIfMissing, reads, keep } = update;
    const options = [
      ...(predicate === undefined ? [] : [`predicate: () => ${predicate}`]),
      ...(predicate === undefined || predicateKey === undefined
        ? []
        : [`predicateKey: ${this.name(predicateKey)}`]),
      ...(valueIfMissing === undefined ? [] : [`valueIfMissing: ${shownValue(valueIfMissing)}`]),
    ];
    const body = [
      ...(keep === undefined ? [] : [`view${keep} = view;`]),
      ...reads.map((rank) => `db.get(${this.name(rank)});`),
      changeOf(change, this.name(update.key)),
    ];
    const last = options.length === 0 ? "" : `, { ${options.join(", ")} }`;
    return [`db.updateIf(${this.key(update)}, (view) => { ${body.join(" ")} }${last});`];
  }

  private batch(steps: readonly Step[], bad: boolean): string[] {
    const lines = steps.map((step) =>
      step.type === "delete"
        ? `  { type: "delete", key: ${this.name(step.key)} },`
        : `  { type: "set", key: ${this.name(step.key)}, value: ${shownValue(step.value, step.form)} },`,
    );
    if (bad) lines.push('  { type: "set", key: "", value: "refused" },');
    return ["db.batch([", ...lines, "]);"];
  }

  private transaction({ body, end }: Extract<Operation, { do: "transaction" }>): string[] {
    const lines = body.flatMap((one) => this.lines(one)).map((line) => `  ${line}`);
    if (end === "throw") lines.push("  throw undone;");
    if (end === "return a promise") lines.push("  return Promise.resolve();");
    return ["db.transaction(() => {", ...lines, "});"];
  }

  private iteration({ range, of }: { range: RankRange; of: Of }): string {
    const [call, asBytes] = of.split(" as ");
    const options = this.options(range);
    if (asBytes !== undefined) options.push('keyAs: "bytes"');
    return `db.${call}(${options.length === 0 ? "" : `{ ${options.join(", ")} }`})`;
  }

  private range(range: RankRange): string {
    return `{ ${this.options(range).join(", ")} }`;
  }

  private options(range: RankRange): string[] {
    const { prefix, ...rest } = range;
    const shown = Object.entries(rest).map(([option, value]) =>
      option === "limit" || option === "reverse"
        ? `${option}: ${value}`
        : `${option}: ${this.name(value as number)}`,
    );
    if (prefix !== undefined) {
      const [rank, length] = prefix;
      shown.push(`prefix: bytes(${this.name(rank)}).slice(0, ${length})`);
    }
    return shown;
  }
}

function kept(slot: number | undefined): string {
  return slot === undefined ? "" : `view${slot} = `;
}

function shownValue({ number, size, kind }: Value, form: Form = "bytes"): string {
  const value =
    kind === "bytes" ? `value(${number}, ${size})` : `${kind}(${number}, ${size} characters)`;
  if (form === "text") return value;
  return form === "buffer" ? `${value}.buffer` : form === "part" ? `partOf(${value})` : value;
}

function changeOf(change: Change, key: string): string {
  switch (change.how) {
    case "poke":
      return `view[${change.at} % view.length] = ${change.byte};`;
    case "rewrite":
      return `view.set(value(${change.number}, view.length));`;
    case "return":
      return `view.fill(scribble); return ${shownValue(change.value, change.form)};`;
    case "return a part of the view":
      return `return view.subarray(0, view.length * ${change.part} / 4);`;
    case "throw":
      return "view.fill(scribble); throw undone;";
    case "return a promise":
      return "view.fill(scribble); return Promise.resolve();";
    case "return a number":
      return "view.fill(scribble); return 7;";
    case "set inside":
      return `view.fill(scribble); db.set(${key}, "refused");`;
  }
}

function yields(to: "a microtask" | "committed" | "flushed" | "compacted" | "a task"): string {
  if (to === "a microtask") return "await null;";
  if (to === "a task") return "await new Promise((resolve) => setTimeout(resolve));";
  if (to === "compacted") return "await db.compact();";
  return `await db.${to};`;
}
