/** How values that are no text are stored: as JSON, or as a codec of the program writes them. */

import { MalformedValueError } from "../../errors/base.js";
import { decoder, encoder } from "../../util/text-coders.js";

/** Turns values into bytes and back, such as `structured()` of `varve/structured`. */
export interface ValueCodec {
  /** Returns the bytes of a value. They are copied. */
  encode(value: never): Uint8Array | ArrayBuffer;
  /** Returns the value of these bytes, which are a view: it keeps nothing of them. */
  decode(bytes: Uint8Array): unknown;
}

/** Values as JSON. What JSON has no form for becomes what `JSON.stringify` makes of it. */
export const jsonValues: ValueCodec = {
  encode: (value) => encoder.encode(JSON.stringify(value)),
  decode(bytes) {
    try {
      return JSON.parse(decoder.decode(bytes));
    } catch (cause) {
      throw new MalformedValueError("The value is not JSON: something else has stored it.", {
        cause,
      });
    }
  },
};
