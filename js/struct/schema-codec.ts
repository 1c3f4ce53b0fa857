/** What collections make of a schema: how its values are stored and changed where they lie. */

import type { Memory, StructCodec, StructDescriptor } from "./codec.js";
import { copy, Edit } from "./edit.js";
import { fingerprint } from "./fingerprint.js";
import { layoutOf } from "./layout.js";
import type { StructSchema } from "./struct.js";
import { alive, drafted, lone, release, type Viewed, type Writer, within, wrong } from "./type.js";

/** One for each schema. */
export class SchemaCodec implements StructCodec<Viewed, Viewed, unknown> {
  readonly kind: StructDescriptor;
  readonly layout: string;
  readonly fingerprint: string;
  private readonly schema: StructSchema;
  /** The value that was measured last, and its bytes, until they are written. */
  private measured: unknown;
  private staged: Writer | undefined;

  constructor(schema: StructSchema) {
    this.kind = schema.kind;
    this.layout = layoutOf(schema.kind);
    this.fingerprint = fingerprint(this.layout);
    this.schema = schema;
    this.measured = undefined;
    this.staged = undefined;
  }

  size(value: unknown): number {
    const { schema } = this;
    if (!schema.apart) return schema.bytes;
    const draft = this.draft(value);
    this.measured = value;
    this.staged = draft;
    return draft.end;
  }

  write(memory: Memory, at: number, value: unknown, size: number): void {
    const { schema, staged, measured } = this;
    if (!schema.apart) {
      try {
        schema.put({ m: memory }, at, value);
      } catch (error) {
        throw within(error, schema.name);
      }
      return;
    }
    const draft = staged !== undefined && measured === value ? staged : this.draft(value);
    const { m, end } = draft;
    this.measured = undefined;
    this.staged = undefined;
    if (end !== size) throw wrong("must not change while it is stored.");
    copy(m, end, memory, at);
    release(draft);
  }

  private draft(value: unknown): Writer {
    const { schema } = this;
    try {
      return drafted(schema, value);
    } catch (error) {
      throw within(error, schema.name);
    }
  }

  view(memory: Memory, at: number, length: number): Viewed {
    return this.schema.view(memory, at, length);
  }

  writable(memory: Memory, at: number, length: number): Viewed {
    const { schema } = this;
    const view = schema.view(memory, at, length);
    const root = schema.growing ? memory.data.getUint16(at, true) : schema.bytes;
    const edit = new Edit(view.$v, root > schema.bytes);
    // What an earlier version wrote is brought to this one.
    if (root < schema.bytes) edit.move(lone(schema.encode(view)));
    return view;
  }

  finish(writable: Viewed): Uint8Array | undefined {
    const { moved } = alive(writable).w as Edit;
    const bytes = moved ? this.schema.encode(writable) : undefined;
    this.revoke(writable);
    return bytes;
  }

  revoke({ $v }: Viewed): void {
    ($v.w as Edit).end();
  }

  check(bytes: Uint8Array): void {
    this.schema.check(bytes);
  }
}
