/** Keys and values as bytes: their limits, and checks of the memory that they lie in. */

import { badArgument, StaleViewError } from "../errors/index.js";

/** Bytes that you pass in: an `ArrayBuffer` or any view of one. */
export type Bytes = ArrayBuffer | ArrayBufferView;

/** A key: a string, stored as UTF-8, or bytes. It is 1 to 65,535 bytes long. Keys are ordered by their bytes. */
export type Key = string | Bytes;

/** A value: a string, stored as UTF-8, or bytes. It is 0 to 16,777,216 bytes long. */
export type Value = string | Bytes;

/** The maximum length of a key in bytes. */
export const MAX_KEY = 65_535;

/** The maximum length of a value in bytes. */
export const MAX_VALUE = 16_777_216;

type Role = "key" | "value" | "note" | "database" | "chunk";

/** The buffers that wasm memories of this realm had before they grew or were detached. */
const detached = new WeakSet<ArrayBufferLike>();

/** Remembers a detached buffer of wasm memory, so that its views are reported as stale and not as foreign. */
export function markDetached(buffer: ArrayBuffer): void {
  detached.add(buffer);
}

/** The built-in getters of typed arrays: unlike properties, which may be overridden, they return the truth. */
const { prototype } = Object.getPrototypeOf(Uint8Array) as { prototype: Uint8Array };
const ofArrays = gettersOf(prototype);
const ofDataViews = gettersOf(DataView.prototype);
const [trueBuffer, , trueLength] = ofArrays;
const trueKind = getterOf<string | undefined>(prototype, Symbol.toStringTag);

function gettersOf(from: object) {
  return [
    getterOf<ArrayBuffer>(from, "buffer"),
    getterOf<number>(from, "byteOffset"),
    getterOf<number>(from, "byteLength"),
  ] as const;
}

function getterOf<T>(from: object, name: PropertyKey): (this: unknown) => T {
  const getter = Object.getOwnPropertyDescriptor(from, name)?.get;
  if (getter === undefined) throw new TypeError("This platform has no typed arrays.");
  return getter as (this: unknown) => T;
}

/**
 * The true byte length of an array. Its own `length` may be a getter that returns anything and runs any code, even
 * writes to the database.
 *
 * @throws TypeError for an object that only pretends to be an array, such as a Proxy
 */
export function byteLengthOf(bytes: Uint8Array): number {
  try {
    return trueLength.call(bytes);
  } catch (cause) {
    throw Object.assign(noBytes(bytes), { cause });
  }
}

/** The true buffer of an array of bytes. */
export function bufferOf(bytes: Uint8Array): ArrayBuffer {
  return trueBuffer.call(bytes);
}

function noBytes(given: unknown): Error {
  return badArgument(
    "Bytes must be a Uint8Array itself, and not a Proxy or an object that looks like one. Pass a copy: " +
      "new Uint8Array(bytes).",
    given,
  );
}

/** By tag and not by class, because each realm has its own classes. */
export function isBuffer(given: unknown): given is ArrayBuffer {
  return (given as Partial<ArrayBuffer> | null)?.[Symbol.toStringTag] === "ArrayBuffer";
}

/** Converts a key or value that is not a `Uint8Array` to one, without a copy. */
export function asBytes(role: Role, given: unknown): Uint8Array {
  if (ArrayBuffer.isView(given)) {
    const [bufferOf, offsetOf, lengthOf] =
      trueKind.call(given) === undefined ? ofDataViews : ofArrays;
    const buffer = bufferOf.call(given);
    refuseGone(role, buffer);
    try {
      return new Uint8Array(buffer, offsetOf.call(given), lengthOf.call(given));
    } catch {
      throw badArgument(`The ArrayBuffer of this ${role} has shrunk below it.`);
    }
  }
  if (isBuffer(given)) {
    refuseGone(role, given);
    return new Uint8Array(given);
  }
  throw badArgument(
    `A ${role} must be a string, an ArrayBuffer or a view such as Uint8Array. ${adviceFor(role, given)}`,
    given,
  );
}

/** Advice for a value of another type. */
function adviceFor(role: Role, given: unknown): string {
  const { then, arrayBuffer, getReader, pipe } = Object(given) as Record<string, unknown>;
  if (typeof then === "function") return "Await the promise first.";
  if (typeof arrayBuffer === "function") return "Give its bytes: await it.arrayBuffer().";
  if (typeof getReader === "function" || typeof pipe === "function") {
    return "Read the stream first: await new Response(stream).arrayBuffer().";
  }
  return role === "key"
    ? "For numbers, dates and tuples use a collection with the option key."
    : "For objects and numbers use a collection: db.collection(name, json()).";
}

/** Advice for a value that is too long. */
export const TOO_LONG_VALUE =
  `A value may have at most ${MAX_VALUE} bytes (16 MiB). Store it as a blob (varve/blobs), or divide it: ` +
  'store its parts in one transaction() under keys such as "video/0", and read them with { prefix: "video/" }.';

/** Advice for a key that is too long. */
export const TOO_LONG_KEY = `A key may have at most ${MAX_KEY} bytes. Store what is longer in the value, or use its hash as the key.`;

/**
 * Refuses an empty array whose buffer was detached, or may have shrunk below it. The buffer is read only if the array
 * has no first byte, because reading it is a call.
 */
export function refuseLost(role: Role, bytes: Uint8Array): void {
  // Check the first byte and not the length: once optimized code of V8 11 has met a resizable buffer, it
  // keeps using the length that an array had before it was detached.
  if (bytes[0] !== undefined) return;
  const buffer = bufferOf(bytes);
  refuseGone(role, buffer);
  if (isResizable(buffer)) {
    throw badArgument(
      `This ${role} is empty, and its resizable ArrayBuffer may have shrunk below it. Pass a copy: .slice().`,
    );
  }
}

/** Whether no other code can change the memory or its length during a call. */
export function isOrdinary(buffer: ArrayBufferLike): boolean {
  return buffer instanceof ArrayBuffer && !isResizable(buffer);
}

function isResizable(buffer: ArrayBufferLike): boolean {
  return (buffer as { resizable?: boolean }).resizable === true;
}

function refuseGone(role: Role, buffer: ArrayBufferLike): void {
  if (!isDetached(buffer as ArrayBuffer)) return;
  if (detached.has(buffer)) {
    throw new StaleViewError(
      `This ${role} is a detached view of the database: the code yielded after getting it. Get it ` +
        "again, or keep a copy made in time with .slice().",
    );
  }
  throw badArgument(
    `The ArrayBuffer of this ${role} is detached: it was transferred, with its bytes.`,
  );
}

function isDetached(buffer: ArrayBuffer): boolean {
  const { detached } = buffer as { detached?: boolean };
  if (detached !== undefined) return detached;
  try {
    // Without the property `detached`, a detached buffer is recognized because it throws. Not in a constructor: V8 11
    // optimizes an unused array away, and its exception with it.
    buffer.slice(0, 0);
    return false;
  } catch {
    return true;
  }
}

/** Refuses a string with a lone surrogate, which UTF-8 cannot encode and would silently replace. */
export function refuseLoneSurrogates(role: Role, text: string): void {
  const { isWellFormed } = text as { isWellFormed?: () => boolean };
  const wellFormed =
    isWellFormed !== undefined ? isWellFormed.call(text) : !/\p{Surrogate}/u.test(text);
  if (!wellFormed) {
    throw badArgument(`A ${role} must not contain a lone surrogate: it has no UTF-8 form.`, text);
  }
}

/** The order of two keys: that of their bytes, and a key comes before longer ones that start with it. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
