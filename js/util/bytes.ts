/** What may be a key or a value, and which memory it may lie in. */

import { badArgument, StaleViewError } from "../errors/index.js";

/** Bytes that you pass in: an `ArrayBuffer` or any view of one. */
export type Bytes = ArrayBuffer | ArrayBufferView;

/** A key: a string, stored as UTF-8, or bytes. It is 1 to 65,535 bytes long. Keys are ordered by their bytes. */
export type Key = string | Bytes;

/** A value: a string, stored as UTF-8, or bytes. It is 0 to 16,777,216 bytes long. */
export type Value = string | Bytes;

/** The most bytes that a key may have. */
export const MAX_KEY = 65_535;

/** The most bytes that a value may have. */
export const MAX_VALUE = 16_777_216;

type Role = "key" | "value";

/** The buffers that wasm memories of this realm had before they grew or detached their views. */
const detached = new WeakSet<ArrayBufferLike>();

/** Remembers a buffer of wasm memory that is detached now: its views are stale, not foreign. */
export function markDetached(buffer: ArrayBuffer): void {
  detached.add(buffer);
}

/** What tells the truth about an array of bytes: a property of its own, or of its class, may say anything. */
const { prototype } = Object.getPrototypeOf(Uint8Array) as { prototype: Uint8Array };
const trueLength = getterOf<number>(prototype, "byteLength");
const trueBuffer = getterOf<ArrayBuffer>(prototype, "buffer");

function getterOf<T>(from: object, name: string): (this: unknown) => T {
  const getter = Object.getOwnPropertyDescriptor(from, name)?.get;
  if (getter === undefined) throw new TypeError(`This platform has no ${name} of typed arrays.`);
  return getter as (this: unknown) => T;
}

/**
 * How many bytes an array really has: its own `length` may be a getter that says anything and does
 * anything, writing included.
 *
 * @throws TypeError for what only pretends to be one, such as a Proxy of one
 */
export function byteLengthOf(bytes: Uint8Array): number {
  try {
    return trueLength.call(bytes);
  } catch (cause) {
    throw Object.assign(noBytes(bytes), { cause });
  }
}

/** The memory that an array of bytes really lies in. */
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

/** By what it is and not by its class, of which every realm has another. */
export function isBuffer(given: unknown): given is ArrayBuffer {
  return (given as Partial<ArrayBuffer> | null)?.[Symbol.toStringTag] === "ArrayBuffer";
}

/** A key or value that is no `Uint8Array`, as one, without a copy. */
export function asBytes(role: Role, given: unknown): Uint8Array {
  if (ArrayBuffer.isView(given)) {
    refuseGone(role, given.buffer);
    return new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
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

/** What to do with something else. */
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

/** What to do with a value that is too long. */
export const TOO_LONG_VALUE =
  `A value may have at most ${MAX_VALUE} bytes (16 MiB). Divide it: store its parts in one transaction() ` +
  'under keys such as "video/0" and "video/1", and read them with { prefix: "video/" }.';

/** What to do with a key that is too long. */
export const TOO_LONG_KEY = `A key may have at most ${MAX_KEY} bytes. Store what is longer in the value, or use its hash as the key.`;

/**
 * Refuses an array without bytes if it had some once: its memory is gone, or may have shrunk below it.
 * Whoever reads a first byte needs not ask, and asking for the memory is a call.
 */
export function refuseLost(role: Role, bytes: Uint8Array): void {
  // The first byte and not the length: once optimized code of V8 11 has met a resizable buffer, it
  // goes on taking the length that an array had before it was detached.
  if (bytes[0] !== undefined) return;
  const buffer = bufferOf(bytes);
  refuseGone(role, buffer);
  if (isResizable(buffer)) {
    throw badArgument(
      `This ${role} is empty, and its resizable ArrayBuffer may have shrunk below it. Pass a copy: .slice().`,
    );
  }
}

/** Whether nobody else can change the memory or its length while a call goes on. */
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
      `This ${role} is a dead view of the database: the code yielded after getting it. Get it ` +
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
    // Before `detached` existed, only a refusal told a detached buffer from an empty one. Not that
    // of a constructor: V8 11 optimizes an array that nobody uses away, and its refusal with it.
    buffer.slice(0, 0);
    return false;
  } catch {
    return true;
  }
}

/** Refuses a string that has no UTF-8: half of a surrogate pair would be replaced in silence. */
export function refuseLoneSurrogates(role: Role, text: string): void {
  const { isWellFormed } = text as { isWellFormed?: () => boolean };
  const wellFormed =
    isWellFormed !== undefined ? isWellFormed.call(text) : !/\p{Surrogate}/u.test(text);
  if (!wellFormed) {
    throw badArgument(`A ${role} must not contain a lone surrogate: it has no UTF-8 form.`, text);
  }
}
