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
