/** varve/standard: collections whose values a Standard Schema checks, of zod, valibot, arktype and others. */

import { badCall } from "../errors/base.js";
import { decoder, encoder } from "../util/text-coders.js";
import type { Declared, Descriptor } from "./codec.js";
import { CopyCodec } from "./copied-codec.js";
import { type JsonValues, json } from "./json-and-text.js";
import { JsonText, jsonOf } from "./plain-json.js";
import { badValue } from "./type.js";

/** A Standard Schema (version 1), as far as it is used: https://standardschema.dev */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a schema finds: a value, or what is wrong. */
type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** What a schema finds wrong in a value. */
export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The error for a value that its schema refuses. */
export interface StandardError extends TypeError {
  readonly code: "VARVE_BAD_ARGUMENT";
  /** The path to the first part that is wrong, such as `.lines[3].price`; empty for the value itself. */
  readonly field: string;
  /** All that is wrong. Errors from a worker do not have it. */
  readonly issues?: readonly StandardIssue[];
}

type Output<S> = S extends StandardSchema<unknown, infer Value> ? Value : never;
type Input<S> = S extends StandardSchema<infer Value, unknown> ? Value : never;

/** How the values are stored: `json()`, or `structured()` of varve/structured. */
export interface StandardOptions {
  /** `json()` by default. */
  readonly as?: StoredAs | undefined;
}

type StoredAs = JsonValues<unknown> | Encoding;

/** The codec of `structured()`. */
interface Encoding extends Declared<unknown, unknown, unknown> {
  encode(value: unknown): Uint8Array;
  decode(bytes: Uint8Array): unknown;
}

/** What both codecs are here. */
interface Inner extends Encoding {
  toJsonText(bytes: Uint8Array): string;
  fromJsonText(json: string): Uint8Array;
}

class StandardCodec extends CopyCodec<unknown> {
  /** As that of `json()`: clients send the JSON of a value if its losses are not refused. */
  readonly lossy: boolean;
  private readonly schema: StandardSchema;
  private readonly inner: Inner;

  constructor(schema: StandardSchema, kind: Descriptor, inner: Inner, lossy: boolean) {
    super(kind);
    this.schema = schema;
    this.inner = inner;
    this.lossy = lossy;
  }

  protected encode(given: unknown): Uint8Array {
    const value: unknown = given instanceof JsonText ? JSON.parse(given.text) : given;
    return this.inner.encode(validated(this.schema, value));
  }

  protected decode(bytes: Uint8Array): unknown {
    return this.inner.decode(bytes);
  }

  /** @internal The value as JSON. */
  toJsonText(bytes: Uint8Array): string {
    return this.inner.toJsonText(bytes);
  }

  /** @internal The bytes of a value that is given as JSON, after its schema has checked it. */
  fromJsonText(text: string): Uint8Array {
    return this.encode(this.decode(this.inner.fromJsonText(text)));
  }
}

/**
 * Values are plain objects that a schema of zod, valibot, arktype or another library of Standard Schemas accepts. They
 * are checked whenever they are written, and stored as the schema returns them, with its defaults.
 *
 * ```ts
 * const User = z.object({ name: z.string(), age: z.number().default(0) });
 * const users = db.collection("users", standard(User));
 * users.set("ann", { name: "Ann" });
 * ```
 *
 * A value that is refused throws a `StandardError`, and nothing is written. `updateIf` checks what the callback leaves,
 * so a schema has to accept its own results: it must not turn text into numbers, for example. Reading checks nothing:
 * the collection is one of `json()` or, with `{ as: structured() }`, of `structured()`, and so readable without a schema.
 *
 * @throws TypeError for a schema that is no Standard Schema
 */
export function standard<S extends StandardSchema>(
  schema: S,
  options: StandardOptions = {},
): Declared<Output<S>, Output<S>, Input<S>> {
  // Schemas may be functions, as those of arktype.
  const described = Object(schema)["~standard"] as Partial<StandardSchema["~standard"]> | undefined;
  if (typeof described?.validate !== "function") {
    throw badValue(
      "standard() needs a Standard Schema, of zod 3.24, valibot 1, arktype 2 or newer.",
      schema,
    );
  }
  for (const name of Object.keys(Object(options))) {
    if (name !== "as") throw badValue("standard() has no option but as.", name);
  }
  const stored: Partial<Inner & JsonValues<unknown>> = Object(options.as ?? json<unknown>());
  const { kind, lossy = false } = stored;
  let codec: StandardCodec | undefined;
  if (kind?.kind === "json") codec = new StandardCodec(schema, kind, asJson(kind, lossy), lossy);
  else if (kind?.kind === "structured" && stored.encode !== undefined) {
    codec = new StandardCodec(schema, kind, stored as Inner, false);
  }
  if (codec === undefined) {
    throw badValue("The option as of standard() must be json() or structured().", options.as);
  }
  return codec as unknown as Declared<Output<S>, Output<S>, Input<S>>;
}

function asJson(kind: Inner["kind"], lossy: boolean): Inner {
  const encode = (value: unknown) => encoder.encode(jsonOf(value, lossy));
  return {
    kind,
    encode,
    decode: (bytes) => JSON.parse(decoder.decode(bytes)) as unknown,
    toJsonText: (bytes) => decoder.decode(bytes),
    fromJsonText: (text) => encode(JSON.parse(text)),
  };
}

/** The value as its schema returns it. */
function validated(schema: StandardSchema, value: unknown): unknown {
  const result = schema["~standard"].validate(value);
  if ("then" in result) {
    // What it comes to is of no interest any more.
    result.then(undefined, () => {});
    throw badCall(
      "standard(): the schema is asynchronous, but a write is done when its call returns. " +
        "Check the value before the write, and store it by a schema without asynchronous parts.",
    );
  }
  if (result.issues === undefined) return result.value;
  const [first] = result.issues;
  // Paths may be of classes of their own, of which `map` makes others.
  const field = Array.from(first?.path ?? [], (step) => stepOf(step)).join("");
  const more = result.issues.length > 1 ? ` (and ${result.issues.length - 1} more)` : "";
  const message = `standard(): ${field || "the value"}: ${first?.message}${more}`;
  throw Object.assign(badCall(message), { field, issues: result.issues });
}

function stepOf(step: PropertyKey | { readonly key: PropertyKey }): string {
  const name = typeof step === "object" ? step.key : step;
  if (typeof name === "number") return `[${name}]`;
  const text = String(name);
  return /^[A-Za-z_$][\w$]*$/.test(text) ? `.${text}` : `[${JSON.stringify(text)}]`;
}
