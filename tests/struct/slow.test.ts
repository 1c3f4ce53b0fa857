/** The slow codec is the reference for the package, so it is checked against musli first. */

import { deepEqual, equal, suite, test, throws } from "../harness.js";
import { fingerprintOf, flatFields, layoutOf, shapeOf } from "./kinds.js";
import { decode, encode, type Fields, fromJson, Malformed } from "./slow.js";
import { unhex, vectors } from "./vectors.js";

suite("struct: the slow codec", () => {
  for (const { name, about, schema, ...vector } of vectors) {
    test(`layout, encoding and decoding equal those of musli: ${name}, ${about}`, () => {
      const { size, align } = shapeOf(schema);
      deepEqual([size, align], [vector.size, vector.align]);
      const places = flatFields(schema).map(([field, at, of]) => [field, at, shapeOf(of).size]);
      deepEqual(places, vector.fields);
      equal(layoutOf(schema), vector.layout);
      equal(fingerprintOf(vector.layout), vector.fingerprint);
      for (const { bytes, value } of vector.values) {
        const made = fromJson(schema, value) as Fields;
        deepEqual(decode(schema, unhex(bytes)), made);
        deepEqual(encode(schema, made), unhex(bytes));
      }
    });
  }

  test("malformed bytes are refused at the place and for the reason in the vectors", () => {
    for (const { name, schema, malformed } of vectors) {
      for (const { about, at, why, bytes } of malformed) {
        const error = throws(() => decode(schema, unhex(bytes))) as Malformed;
        equal(error instanceof Malformed, true, `${name}, ${about}: ${error}`);
        equal(error.why, why, `${name}, ${about}`);
        equal(error.at.startsWith(at), true, `${name}, ${about}: ${error.at}`);
      }
    }
  });
});
