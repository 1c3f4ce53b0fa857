/** The codec that collections make from a schema: it stores values and changes them in place. */

import type { Memory, StructCodec, StructDescriptor } from "./codec.js";
import { fingerprint } from "./fingerprint.js";
import { copy, Edit } from "./in-place-update.js";
import type { Leaf } from "./layout.js";
import { layoutOf } from "./layout-string.js";
import type { StructSchema } from "./struct.js";
import {
  badValue,
  type Cursor,
  encodeScratch,
  prefixField,
  release,
  standaloneMemory,
  type Viewed,
  type Writer,
  zero,
} from "./type.js";

/** Moves a view to another place, and returns the old one. */
type Move = (view: { $v: Cursor }, to: Cursor, from?: Cursor) => Cursor;

/** Schemas are spread over these functions, because engines remember four classes at each code location (view.ts). */
const MOVES: readonly Move[] = [
  (view, to, from = view.$v) => {
    view.$v = to;
    return from;
  },
  (view, to, from = view.$v) => {
    view.$v = to;
    return from;
  },
  (view, to, from = view.$v) => {
    view.$v = to;
    return from;
  },
  (view, to, from = view.$v) => {
    view.$v = to;
    return from;
  },
];
let schemas = 0;

/** The place of views whose update has ended. */
const ENDED = /* @__PURE__ */ new Edit();

/** The codec of one schema. */
export class SchemaCodec implements StructCodec<Viewed, Viewed, unknown> {
  readonly kind: StructDescriptor;
  readonly layout: string;
  readonly fingerprint: string;
  /** The fields with their defaults, which JSON of values of earlier versions has. */
  readonly leaves: readonly Leaf[];
  private readonly schema: StructSchema;
  /** The value that was measured last, and its bytes, until they are written. */
  private measured: unknown;
  private staged: Writer | undefined;
  /**
   * An ended update, kept to be reused. An update that begins inside another one, for example in another database, uses
   * a new object.
   */
  private idle: Edit | undefined;
  private readonly move: Move;

  constructor(schema: StructSchema) {
    this.kind = schema.kind;
    this.layout = layoutOf(schema.kind);
    this.fingerprint = fingerprint(this.layout);
    this.leaves = schema.leaves;
    this.schema = schema;
    this.measured = undefined;
    this.staged = undefined;
    this.idle = undefined;
    this.move = MOVES[schemas++ % MOVES.length] as Move;
  }

  size(value: unknown): number {
    const { schema } = this;
    if (!schema.isOutOfLine) return schema.bytes;
    const draft = this.draft(value);
    this.measured = value;
    this.staged = draft;
    return draft.end;
  }

  write(memory: Memory, at: number, value: unknown, size: number): void {
    const { schema, staged, measured } = this;
    if (!schema.isOutOfLine) {
      try {
        zero(memory, at, size);
        schema.put({ m: memory }, at, value);
      } catch (error) {
        throw prefixField(error, schema.name);
      }
      return;
    }
    const draft = (measured === value && staged) || this.draft(value);
    const { m, end } = draft;
    this.measured = undefined;
    this.staged = undefined;
    if (end !== size) throw badValue("must not change while it is stored.");
    copy(m, end, memory, at);
    release(draft);
  }

  private draft(value: unknown): Writer {
    const { schema } = this;
    try {
      return encodeScratch(schema, value);
    } catch (error) {
      throw prefixField(error, schema.name);
    }
  }

  view(memory: Memory, at: number, length: number): Viewed {
    return this.schema.view(memory, at, length);
  }

  writable(memory: Memory, at: number, length: number): Viewed {
    const { schema } = this;
    const edit = this.idle ?? new Edit();
    this.idle = undefined;
    const view = schema.over(edit.begin(memory, at, length));
    const root = schema.growing ? memory.data.getUint16(at, true) : schema.bytes;
    edit.fixed = root > schema.bytes;
    // Convert a value of an earlier version to this one.
    if (root < schema.bytes) edit.move(standaloneMemory(schema.encode(view)));
    return view;
  }

  finish(writable: Viewed): Uint8Array | undefined {
    const { schema, move } = this;
    const place = move(writable, ENDED.root);
    const edit = place.w as Edit;
    try {
      return edit.moved ? schema.encode(schema.make(place)) : undefined;
    } finally {
      this.end(edit);
    }
  }

  revoke(writable: Viewed): void {
    this.end(this.move(writable, ENDED.root).w as Edit);
  }

  private end(edit: Edit): void {
    if (edit === ENDED) return;
    edit.end();
    // An update that has moved holds a copy of the value, so it is not reused.
    if (!edit.moved) this.idle = edit;
  }

  check(bytes: Uint8Array): void {
    this.schema.check(bytes);
  }
}
