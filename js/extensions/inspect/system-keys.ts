/** The keys of the engine's own records. */

import { hex } from "./fields.js";

/** The engine's keys as text. They are a word, and behind a slash a name or numbers of the highest byte first. */
export function systemKeyText(key: Uint8Array): string {
  const slash = key.indexOf(47) + 1;
  const word = new TextDecoder().decode(key.subarray(0, slash));
  const rest = key.subarray(slash);
  if (word === "" || word === "collection/" || word === "ids/" || word === "migration/") {
    return new TextDecoder().decode(key);
  }
  const isIndex = word === "index/";
  const digits = isIndex ? rest.subarray(0, 4) : rest.subarray(0, 8);
  const figure = digits.reduce((sum, byte) => sum * 256 + byte, 0);
  const more = rest.subarray(digits.length);
  if (isIndex) return `${word}${figure}/${new TextDecoder().decode(more)}`;
  return `${word}${figure}${more.length > 0 ? `/${hex(more)}` : ""}`;
}
