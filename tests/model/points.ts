/** Operations on single keys, and on several keys at once. */

import {
  BAD_ARGUMENT,
  CONFLICT,
  codeOf,
  equal,
  head,
  Mismatch,
  OUT_OF_MEMORY,
  REENTRANCY,
  refused,
  STALE_VIEW,
} from "./checks.js";
import { textIn } from "./keys.js";
import type { Machine } from "./machine.js";
import type { Entry } from "./model.js";
import type { Form, Operation } from "./program.js";
import { bytesOf, partOf, same, textOf, type Value } from "./values.js";

type Of<Name extends Operation["do"]> = Extract<Operation, { do: Name }>;

export function get(machine: Machine, { key, form, keep }: Of<"get">): void {
  const view = machine.db.get(machine.key({ key, form }));
  machine.shows(key, view, "get");
  if (keep !== undefined && view !== undefined) machine.keep(keep, view, key, "get");
}

export function getText(machine: Machine, target: { key: number; form: Form }): void {
  const bytes = machine.model.get(target.key)?.bytes;
  const text = bytes && textIn(bytes);
  const call = () => machine.db.getText(machine.key(target));
  if (bytes !== undefined && text === undefined) refused(BAD_ARGUMENT, call);
  else machine.agree("getText", call(), text);
}

export function getEntry(machine: Machine, target: { key: number; form: Form }): void {
  const found = machine.db.getEntry(machine.key(target));
  machine.shows(target.key, found?.value, "getEntry");
  if (found !== undefined) machine.sees(machine.model.get(target.key) as Entry, found.version);
}

export function getMany(machine: Machine, { keys, keep }: Of<"getMany">): void {
  const lengths = keys.map((rank) => machine.model.get(rank)?.bytes.length ?? 0);
  let views: (Uint8Array | undefined)[];
  try {
    views = machine.db.getMany(keys.map((key) => machine.key({ key, form: "text" })));
  } catch (error) {
    const total = lengths.reduce((sum, length) => sum + length, 0);
    if (codeOf(error) !== OUT_OF_MEMORY || total < machine.setting.memory / 8) throw error;
    return;
  }
  equal("the number of values", views.length, keys.length);
  for (const [i, rank] of keys.entries()) machine.shows(rank, views[i], "getMany");
  const last = views.at(-1);
  if (keep !== undefined && last !== undefined) {
    machine.keep(keep, last, keys.at(-1) as number, "getMany");
  }
}

export function set(machine: Machine, { key: rank, form, value, as, ifVersion }: Of<"set">): void {
  const bytes = bytesOf(value);
  const given = inForm(value, bytes, as);
  const key = machine.key({ key: rank, form });
  if (ifVersion === undefined) {
    machine.db.set(key, given);
    machine.wrote(rank, bytes);
    return;
  }
  const found = machine.db.getEntry(key)?.version ?? 0;
  const wanted = ifVersion === "its" ? found : ifVersion === "missing" ? 0 : found + 1;
  const call = () => machine.db.set(key, given, { ifVersion: wanted });
  if (wanted !== found) {
    refused(CONFLICT, call);
    return;
  }
  call();
  machine.wrote(rank, bytes);
}

/** Passes a value of the database itself to it. */
export function copy(machine: Machine, { from, to, pinned: slot }: Of<"copy">): void {
  const pinned = slot === undefined ? undefined : machine.pins[slot];
  const view = pinned?.pin.bytes ?? machine.db.get(machine.key({ key: from, form: "bytes" }));
  const bytes = pinned?.bytes ?? machine.model.get(from)?.bytes;
  if (!same(view, bytes)) throw new Mismatch(`to be copied: ${head(view)}, not ${head(bytes)}`);
  if (view === undefined || bytes === undefined) return;
  machine.db.set(machine.key({ key: to, form: "text" }), view as Uint8Array<ArrayBuffer>);
  machine.wrote(to, new Uint8Array(bytes));
}

export function remove(machine: Machine, target: { key: number; form: Form }): void {
  const there = machine.model.has(target.key);
  machine.agree("delete", machine.db.delete(machine.key(target)), there);
  machine.deleted(target.key);
}

export function batch(machine: Machine, { steps, bad }: Of<"batch">): void {
  const values = steps.map((step) => (step.type === "set" ? bytesOf(step.value) : undefined));
  const operations = steps.map((step, i) => {
    const key = machine.key({ key: step.key, form: step.type === "set" ? "text" : step.form });
    if (step.type === "delete") return { type: step.type, key };
    const bytes = values[i] as Uint8Array<ArrayBuffer>;
    return { type: step.type, key, value: inForm(step.value, bytes, step.form) };
  });
  if (bad) {
    const wrong = { type: "set", key: "", value: "refused" } as const;
    refused(BAD_ARGUMENT, () => machine.db.batch([...operations, wrong]));
    return;
  }
  machine.db.batch(operations);
  for (const [i, step] of steps.entries()) {
    if (step.type === "delete") machine.deleted(step.key);
    else machine.wrote(step.key, values[i] as Uint8Array<ArrayBuffer>);
  }
}

export function pin(machine: Machine, { slot, key, form }: Of<"pin">): void {
  const call = () => machine.db.pin(machine.key({ key, form }));
  if (machine.depth > 0) {
    refused(REENTRANCY, call);
    return;
  }
  unpin(machine, slot);
  const made = call();
  const bytes = machine.model.get(key)?.bytes;
  machine.agree("pin", made !== undefined, bytes !== undefined);
  if (made === undefined || bytes === undefined) return;
  machine.pins[slot] = { pin: made, bytes };
  machine.checkPins();
}

export function unpin(machine: Machine, slot: number): void {
  const pinned = machine.pins[slot];
  if (pinned === undefined) return;
  machine.checkPins();
  machine.pins[slot] = undefined;
  pinned.pin.dispose();
  pinned.pin.dispose();
  refused(STALE_VIEW, () => pinned.pin.bytes);
}

/** A value in the form in which the program passes it. */
export function inForm(value: Value, bytes: Uint8Array<ArrayBuffer>, form: Form) {
  if (form === "text" && value.kind !== "bytes") return textOf(value);
  if (form === "buffer") return bytes.buffer;
  return form === "part" ? partOf(bytes) : bytes;
}
