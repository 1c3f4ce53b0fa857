/** The package against bytes made by Rust. */

import { codecOf } from "varve/codec";
import { fromJson as bytesOf, toJson } from "varve/json";
import { added, MalformedValueError, str, u16, u32, versioned } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { oursOf, schemaOf, walk } from "./ours.js";
import { type Fields, fromJson } from "./reference-codec.js";
import { unhex, vectors } from "./vectors.js";

/** The same bytes at an odd address, with bytes of another value around them. */
function within(bytes: Uint8Array): Uint8Array {
  const large = new Uint8Array(bytes.length + 101).fill(0xa5);
  large.set(bytes, 51);
  return large.subarray(51, 51 + bytes.length);
}

describe("struct: vectors of Rust", () => {
  for (const { name, schema: kind, ...vector } of vectors) {
    test(`${name} is laid out, written and read as in Rust, byte for byte`, () => {
      const schema = schemaOf(kind);
      expect(JSON.parse(JSON.stringify(schema.kind))).toStrictEqual(
        JSON.parse(JSON.stringify(kind)),
      );
      expect(codecOf(schema).layout).toBe(vector.layout);
      expect(codecOf(schema).fingerprint).toBe(vector.fingerprint);
      expect([schema.bytes, schema.align]).toStrictEqual([vector.size, vector.align]);
      for (const { bytes: digits, value } of vector.values) {
        const bytes = unhex(digits);
        const ours = oursOf(kind, fromJson(kind, value) as Fields) as Fields;
        expect(schema.encode(ours)).toStrictEqual(bytes);
        for (const place of [bytes, within(bytes)]) {
          schema.check(place);
          const view = schema.view(place);
          expect(view.snapshot()).toStrictEqual(ours);
          expect(walk(kind, view)).toStrictEqual(ours);
          expect(schema.encode(view)).toStrictEqual(bytes);
        }
      }
    });

    test(`malformed bytes of ${name} are refused by check and by reading, with field and reason`, () => {
      const schema = schemaOf(kind);
      for (const { about, at, why, bytes } of vector.malformed) {
        const path = at === "" ? name : `${name}.${at}`;
        for (const place of [unhex(bytes), within(unhex(bytes))]) {
          const fields: string[] = [];
          for (const act of [
            () => schema.check(place),
            () => schema.view(place).snapshot(),
            () => walk(kind, schema.view(place)),
          ]) {
            const error = throws(act) as MalformedValueError;
            assert(error instanceof MalformedValueError, `${about}: ${error}`);
            assert(error.message.startsWith(`${error.field}: ${why}: `), `${about}: ${error}`);
            fields.push(error.field);
          }
          // The third error comes from views of parts, which name themselves.
          for (const field of fields.slice(0, 2))
            assert(field.startsWith(path), `${about}: ${field}`);
          assert(fields[2] !== "", about);
        }
      }
    });
  }

  test("values of an older struct in Rust are read with defaults, those of a newer one without its new fields", () => {
    const [older, newer] = ["Old", "New"].map((name) => vectors.find((one) => one.name === name));
    const New = versioned("New", {
      stock: u16,
      name: str,
      price: added(u32, 5),
      note: added(str, "none"),
    });
    for (const { bytes, value } of older!.values) {
      const all = { ...value, price: 5, note: "none" };
      New.check(unhex(bytes));
      expect(New.view(unhex(bytes)).snapshot() as unknown).toStrictEqual(all);
      expect(JSON.parse(toJson(New, unhex(bytes)))).toStrictEqual(all);
      expect(New.encode(New.view(unhex(bytes)))).toStrictEqual(bytesOf(New, JSON.stringify(value)));
    }
    const Old = schemaOf(older!.schema);
    for (const { bytes, value } of newer!.values) {
      const rest = { stock: value.stock, name: value.name };
      expect(Old.view(unhex(bytes)).snapshot() as unknown).toStrictEqual(rest);
      expect(JSON.parse(toJson(Old, unhex(bytes)))).toStrictEqual(rest);
    }
  });
});
