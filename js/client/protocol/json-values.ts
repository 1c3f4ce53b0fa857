/**
 * The form of values on their way to the worker. A `json()` collection stores the JSON form of a value, which
 * only the page can take: messages lose the methods of objects, such as `toJSON`, and cannot carry the
 * proxies of frameworks. Other collections get a copy. Until the worker has listed its JSON collections, both
 * are sent where they differ.
 */

import { type BadArgumentError, badCall } from "../../errors/index.js";
import { isTooDeep, JsonText, jsonOf, TOO_DEEP } from "../../struct/json-form.js";
import { cloneArgs, isBytes } from "./clone.js";

/** The forms of a value that are sent with its copy. */
export interface Forms {
  /** Its JSON form. */
  readonly json?: string;
  /** The reason why it has no JSON form. */
  readonly fault?: string;
  /** The part of the value that the copy lacks. */
  readonly lacks?: string;
}

/** A value in the form in which it is sent. */
export interface Sent {
  readonly value: unknown;
  readonly forms?: Forms | undefined;
  /** Whether the copy has less of the value than its JSON form. */
  readonly isLess?: boolean;
}

/** Converts a value: to JSON if `isJson`, to a copy if `false`, and to both where they differ if unknown. */
export function sentOf(given: unknown, isJson?: boolean): Sent {
  if (isJson) return { value: undefined, forms: { json: jsonOf(given) } };
  const copy = new Copy();
  const value = copy.of(given, "the value");
  const { lacks, differs, isLess } = copy;
  if (!differs) return { value };
  let forms: Forms = lacks === undefined ? {} : { lacks };
  try {
    if (isJson === undefined) forms = { ...forms, json: jsonOf(given) };
  } catch (error) {
    forms = { ...forms, fault: (error as Error).message };
  }
  return { value, forms, isLess };
}

/** A copy of a sent value, as a later read would return it. */
export function plainValueOf({ value, forms, isLess }: Sent, isJson?: boolean): unknown {
  if (forms?.fault !== undefined && isJson) throw badCall(forms.fault);
  if (isJson) return JSON.parse(forms?.json ?? jsonOf(value));
  return isLess && forms?.json !== undefined ? JSON.parse(forms.json) : structuredClone(value);
}

/** The value that a collection stores. `isCustom`: its codec is the program's own. */
export function storedFormOf(
  value: unknown,
  forms: Forms,
  isJson: boolean,
  isCustom: boolean,
): unknown {
  const { json, fault, lacks } = forms;
  if (isJson) {
    if (fault !== undefined) throw badCall(fault);
    return json === undefined ? value : new JsonText(json);
  }
  if (isCustom && lacks !== undefined) throw unsendable("The value", lacks);
  return value;
}

/**
 * The value that an update assigns to a field. Its JSON form is taken from an object with this field only,
 * because a value's `toJSON` gets the name as its argument, and may omit the field.
 */
export function fieldOf(name: string, given: unknown, isJson: boolean | undefined): Sent {
  const around = { [name]: given };
  if (isJson) return { value: fieldFrom(name, jsonOf(around)) };
  const { value, forms } = sentOf(around, isJson);
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

/** Copies the values that messages can carry, reading through proxies. */
class Copy {
  lacks: string | undefined;
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
      const copy: unknown = structuredClone(value);
      this.known.set(value, copy);
      return copy;
    } catch {
      this.lacks ??= `${name} is a ${kind.slice(8, -1)}`;
      this.differs = this.isLess = true;
      return this.ofFields(value);
    }
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
