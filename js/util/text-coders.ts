/**
 * UTF-8 by the platform. The realm in which Jest runs programs with jsdom has no `TextEncoder`; the Node
 * below it has.
 */

import { VarveError } from "../errors/base.js";

interface Coders {
  readonly TextEncoder: new () => TextEncoder;
  readonly TextDecoder: new (label: string, options?: TextDecoderOptions) => TextDecoder;
}

function missing(): never {
  throw new VarveError(
    "VARVE_TEXT_ENCODER",
    "There is no TextEncoder here. Set TextEncoder and TextDecoder on globalThis.",
  );
}

/** Importing the package encodes some names of ASCII; where these are missing, only calls with other text fail. */
function Missing() {
  const encode = (text: string) =>
    Uint8Array.from(text, (letter) => (letter < "\x80" ? letter.charCodeAt(0) : missing()));
  return { encode, encodeInto: missing, decode: missing };
}

function coders(): Coders {
  const here = globalThis as unknown as Partial<Coders> & {
    readonly process?: { getBuiltinModule?(name: string): Coders };
  };
  if (here.TextEncoder !== undefined) return here as Coders;
  const missing = { TextEncoder: Missing, TextDecoder: Missing } as unknown as Coders;
  return here.process?.getBuiltinModule?.("util") ?? missing;
}

export const encoder: TextEncoder = /* @__PURE__ */ new (coders().TextEncoder)();

/** A decoder of its own, as `new TextDecoder` makes it. */
export function newDecoder(label = "utf-8", options?: TextDecoderOptions): TextDecoder {
  return new (coders().TextDecoder)(label, options);
}

/** Throws at what is not UTF-8. */
export const decoder: TextDecoder = /* @__PURE__ */ newDecoder("utf-8", {
  fatal: true,
  ignoreBOM: true,
});
