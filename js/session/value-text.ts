/** Values as text. */

import { badArgument } from "../errors/index.js";
import { decoder } from "../util/text-coders.js";

/** The text that a view shows. @throws TypeError if it is not UTF-8 */
export function textOf(view: Uint8Array<ArrayBuffer>): string {
  try {
    return decoder.decode(view);
  } catch (cause) {
    throw Object.assign(badArgument("The value is not UTF-8 text. Use get() for its bytes."), {
      cause,
    });
  }
}

/** The text of a key of a range. @throws TypeError if it is not UTF-8 */
export function keyText(key: Uint8Array): string {
  try {
    return decoder.decode(key);
  } catch {
    throw badArgument(
      'A key in this range is not UTF-8. Get keys as bytes with the option keyAs: "bytes".',
    );
  }
}
