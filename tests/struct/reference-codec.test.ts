/** The slow codec is the reference for the package, so it is checked against musli first. */

import { describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { fingerprintOf, flatFields, layoutOf, shapeOf } from "./kinds.js";
import { decode, encode, type Fields, fromJson, Malformed } from "./reference-codec.js";
import { unhex, vectors } from "./vectors.js";

describe("struct: the slow codec", () => {
  for (const { name, about, schema, ...vector } of vectors) {
    test(`layout, encoding and decoding equal those of musli: ${name}, ${about}`, () => {
      const { size, align } = shapeOf(schema);
      expect([size, align]).toStrictEqual([vector.size, vector.align]);
      const layout = flatFields(schema).map(([field, at, of]) => [field, at, shapeOf(of).size]);
      expect(layout).toStrictEqual(vector.fields);
      expect(layoutOf(schema)).toBe(vector.layout);
      expect(fingerprintOf(vector.layout)).toBe(vector.fingerprint);
      for (const { bytes, value } of vector.values) {
        const made = fromJson(schema, value) as Fields;
        expect(decode(schema, unhex(bytes))).toStrictEqual(made);
        expect(encode(schema, made)).toStrictEqual(unhex(bytes));
      }
    });
  }

  test("malformed bytes are refused at the place and for the reason in the vectors", () => {
    for (const { name, schema, malformed } of vectors) {
      for (const { about, at, why, bytes } of malformed) {
        const error = throws(() => decode(schema, unhex(bytes))) as Malformed;
        expect(error instanceof Malformed, `${name}, ${about}: ${error}`).toBe(true);
        expect(error.why, `${name}, ${about}`).toBe(why);
        expect(error.at.startsWith(at), `${name}, ${about}: ${error.at}`).toBe(true);
      }
    }
  });
});
