/**
 * The form of values on their way to the worker. A `json()` collection stores the JSON form of a value, which
 * only the page can take: messages lose the methods of objects, such as `toJSON`, and cannot carry the
 * proxies of frameworks. Other collections get a copy. Until the worker has listed its JSON collections, both
 * are sent where they differ.
 */

import { type BadArgumentError, badCall } from "../../errors/index.js";
import { isTooDeep, JsonText, jsonOf, TOO_DEEP } from "../../struct/plain-json.js";
import { cloneArgs, isBytes } from "./clone.js";

/**
 * How a collection stores its values, as far as the form in which they are sent depends on it: as JSON, as JSON with
 * losses, as structured clone has them, or otherwise. `undefined` until the worker has sent its list.
 */
export type Storing = true | "lossy" | "structured" | false | undefined;

/** The forms of a value that are sent with its copy. */
export interface Forms {
  /** Its JSON form. */
  readonly json?: string;
  /** What its JSON form loses. */
  readonly loss?: string;
  /** The reason why it has no JSON form. */
  readonly fault?: string;
  /** The part of the value that the copy lacks. */
  readonly lacks?: string;
  /** A part that is an object of the platform, such as a URL: its copy may be an empty object. */
  readonly foreign?: string;
}

/** A value in the form in which it is sent. */
export interface Sent {
  readonly value: unknown;
  readonly forms?: Forms | undefined;
  /** Whether the copy has less of the value than its JSON form. */
  readonly isLess?: boolean;
}

/** Whether values are stored as JSON. */
function areJson(storing: Storing): storing is true | "lossy" {
  return storing === true || storing === "lossy";
}

/** Converts a value: to JSON, to a copy, or to both where they differ if it is not known how it will be stored. */
export function sentOf(given: unknown, storing?: Storing): Sent {
  if (areJson(storing)) {
    return { value: undefined, forms: { json: jsonOf(given, storing === "lossy") } };
  }
  const copy = new Copy();
  const copied = copy.of(given, "the value");
  const value = (storing === false ? undefined : exactCopyOf(given)) ?? copied;
  const { lacks, foreign, differs, isLess } = copy;
  if (!differs) return { value };
  let forms: Forms = { ...(lacks && { lacks }), ...(foreign && { foreign }) };
  try {
    if (storing === undefined) forms = { ...forms, json: jsonOf(given, true) };
  } catch (error) {
    forms = { ...forms, fault: (error as Error).message };
  }
  try {
    if (forms.json !== undefined) jsonOf(given);
  } catch (error) {
    forms = { ...forms, loss: (error as Error).message };
  }
  return { value, forms, isLess };
}

/** A structured clone; `undefined` if there is none, as of views and of the proxies of frameworks. */
function exactCopyOf(given: unknown): unknown {
  try {
    return structuredClone(given);
  } catch {
    return undefined;
  }
}

/** A copy of a sent value, as a later read would return it. */
export function plainValueOf({ value, forms = {}, isLess }: Sent, storing?: Storing): unknown {
  const { json, loss } = forms;
  if (areJson(storing)) {
    refuseFaults(forms, storing);
    return JSON.parse(json ?? jsonOf(value, storing === "lossy"));
  }
  refuseLacks(forms, storing);
  const isJson = isLess && json !== undefined && loss === undefined && storing !== "structured";
  return isJson ? JSON.parse(json) : structuredClone(value);
}

/** @throws TypeError for a value that has no JSON form, or loses something in it */
function refuseFaults({ fault, loss }: Forms, storing: true | "lossy"): void {
  const why = fault ?? (storing === true ? loss : undefined);
  if (why !== undefined) throw badCall(why);
}

/** @throws TypeError for a value that loses something on its way to a codec that would keep it */
function refuseLacks({ lacks, foreign }: Forms, storing: Storing, isCustom = false): void {
  const why = storing === "structured" ? (lacks ?? foreign) : isCustom ? lacks : undefined;
  if (why !== undefined) throw unsendable("The value", why);
}

/** The value that a collection stores. `isCustom`: its codec is the program's own. */
export function storedFormOf(
  value: unknown,
  forms: Forms,
  storing: Storing,
  isCustom: boolean,
): unknown {
  const { json } = forms;
  if (areJson(storing)) {
    refuseFaults(forms, storing);
    return json === undefined ? value : new JsonText(json);
  }
  refuseLacks(forms, storing, isCustom);
  return value;
}

/**
 * The value that an update assigns to a field. Its JSON form is taken from an object with this field only,
 * because a value's `toJSON` gets the name as its argument, and may omit the field.
 */
export function fieldOf(name: string, given: unknown, storing: Storing): Sent {
  const around = { [name]: given };
  if (areJson(storing)) return { value: fieldFrom(name, jsonOf(around, storing === "lossy")) };
  const { value, forms } = sentOf(around, storing);
  return { value: (value as typeof around)[name], forms };
}

/** The value of a field in the JSON form that `fieldOf` has made. */
export function fieldFrom(name: string, json: string): unknown {
  return (JSON.parse(json) as Record<string, unknown>)[name];
}

/** As `structuredClone`, but also accepts the proxies that frameworks make of plain data. */
export function cloned<T>(given: T, what: string): T {
  try {
    return structuredClone(given);
  } catch (cause) {
    const copy = new Copy();
    const value = copy.of(given, "it");
    if (copy.lacks !== undefined) throw unsendable(what, copy.lacks, cause);
    return value as T;
  }
}

/** Runs a function that copies values. A stack overflow, caused by their depth, becomes a clear error. */
export function carried<T>(copies: () => T): T {
  try {
    return copies();
  } catch (error) {
    throw isTooDeep(error) ? unsendable("A value", TOO_DEEP, error) : error;
  }
}

/** A copy of a key or a range that a message can carry. */
export function ownClone<T>(given: T, what: string): T {
  return carried(() => cloned(cloneArgs(given), what));
}

/** The error for a value that no message can carry. */
export function unsendable(what: string, why: string, cause?: unknown): BadArgumentError {
  const message = `${what} cannot be sent to the worker: ${why}. Give plain data.`;
  return Object.assign(badCall(message), cause !== undefined && { cause });
}

type Items = Map<unknown, unknown> | Set<unknown>;

/** The kinds of objects that a structured clone has completely. */
const CLONED = /^\[object (Date|RegExp|Error|Number|String|Boolean|BigInt)\]$/;

/** Copies the values that messages can carry, reading through proxies. */
class Copy {
  lacks: string | undefined;
  foreign: string | undefined;
  /** Whether the copy may have another JSON form. */
  differs = false;
  isLess = false;
  private readonly known = new Map<object, unknown>();

  of(value: unknown, name: string): unknown {
    switch (typeof value) {
      case "object":
        return value === null ? value : (this.known.get(value) ?? this.ofObject(value, name));
      case "bigint":
        this.differs ||= "toJSON" in BigInt.prototype;
        return value;
      case "function":
      case "symbol":
        this.differs = true;
        this.lacks ??= `${name} is a ${typeof value}`;
        return undefined;
      default:
        return value;
    }
  }

  private ofObject(value: object, name: string): unknown {
    const { $v, snapshot, toJSON } = value as Partial<Record<string, unknown>>;
    if (Object($v) === $v) {
      // A view of a struct copies itself. A spread view throws here.
      JSON.stringify(typeof snapshot === "function" ? 0 : $v);
      this.differs = true;
      if (typeof snapshot === "function") return snapshot.call(value);
    }
    const hasForm = typeof toJSON === "function";
    this.differs ||= hasForm;
    if (Array.isArray(value)) {
      const copy: unknown[] = [];
      this.known.set(value, copy);
      for (let i = 0; i < value.length; i += 1) copy.push(this.of(value[i], `[${i}]`));
      return copy;
    }
    const kind = Object.prototype.toString.call(value);
    if (kind === "[object Object]") {
      this.isLess ||= hasForm;
      return this.ofFields(value);
    }
    // The clone of a date is complete, and that of bytes lacks nothing but a JSON form. Others may lack
    // something.
    if (kind !== "[object Date]" && !isBytes(value)) this.differs = this.isLess = true;
    try {
      if (kind === "[object Map]" || kind === "[object Set]") return this.ofItems(value as Items);
      const copy: unknown = structuredClone(value);
      this.known.set(value, copy);
      if (!isBytes(value) && !CLONED.test(kind))
        this.foreign ??= `${name} is a ${kind.slice(8, -1)}`;
      return copy;
    } catch {
      this.lacks ??= `${name} is a ${kind.slice(8, -1)}`;
      this.differs = this.isLess = true;
      return this.ofFields(value);
    }
  }

  private ofItems(value: Items): object {
    // Throws for a proxy.
    const items = [...value.entries()];
    if (value instanceof Map) {
      const copy = new Map<unknown, unknown>();
      this.known.set(value, copy);
      for (const [key, item] of items) copy.set(this.of(key, "a key"), this.of(item, "an item"));
      return copy;
    }
    const copy = new Set<unknown>();
    this.known.set(value, copy);
    for (const [item] of items) copy.add(this.of(item, "an item"));
    return copy;
  }

  private ofFields(value: object): object {
    const copy: Record<string, unknown> = {};
    this.known.set(value, copy);
    for (const name of Object.keys(value)) {
      const field = this.of((value as Record<string, unknown>)[name], name);
      if (name !== "__proto__") copy[name] = field;
      else Object.defineProperty(copy, name, { value: field, enumerable: true });
    }
    return copy;
  }
}
