/** Trusted Types, for sites that require them. */

/** The part of a Trusted Types policy that is used. TypeScript's DOM library lacks it. */
interface Policy {
  createScriptURL(url: string): string;
}

let policy: Policy | undefined;

/**
 * Converts the URL of a running worker, or an invalid URL, to a trusted one where Trusted Types are required.
 *
 * @throws TypeError if the site does not allow the policy `varve`
 */
export function trusted(url: string): string {
  const { trustedTypes } = globalThis as {
    trustedTypes?: { createPolicy(name: string, rules: Policy): Policy };
  };
  policy ??= trustedTypes?.createPolicy("varve", { createScriptURL: (given) => given });
  return policy?.createScriptURL(url) ?? url;
}
