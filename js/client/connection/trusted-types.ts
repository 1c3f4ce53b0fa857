/** Trusted Types, as far as a site requires them. */

/** What is used of them, which the library of types does not know. */
interface Policy {
  createScriptURL(url: string): string;
}

let policy: Policy | undefined;

/**
 * The address of a worker that runs already, or what is none, as a realm takes it that requires Trusted Types.
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
