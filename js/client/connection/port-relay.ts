/**
 * The shared worker that gives the ports of clients to the page of the present owner. Its program is the file
 * of the owner's worker: that address is the same in every tab, whatever a bundler does, and no policy of the
 * page refuses it, since the worker runs.
 */

import { trusted } from "./trusted-types.js";
import type { Program } from "./worker-messages.js";

/** What is used of a shared worker's scope. */
interface SharedScope {
  readonly name: string;
  addEventListener(type: "connect", listener: (event: MessageEvent) => void): void;
}

/** Carries ports if this realm is a shared worker that a client has started for that. */
export function carryPorts(): void {
  const scope = globalThis as unknown as SharedScope;
  // Programs may have shared workers of their own: those have another name, or none.
  if (!("SharedWorkerGlobalScope" in globalThis) || !scope.name.startsWith("varve:")) return;
  let owner: unknown;
  let page: MessagePort | undefined;
  scope.addEventListener("connect", ({ ports: [port] }) => {
    if (port === undefined) return;
    port.onmessage = ({ data, ports: [visitor] }) => {
      if (visitor !== undefined) {
        if (data === owner) page?.postMessage(0, [visitor]);
      } else {
        owner = data;
        page = port;
      }
    };
  });
}

/** What of this worker other tabs can start as a shared worker. */
export function workerProgram(): Program | undefined {
  const { location, importScripts } = globalThis as {
    location?: { readonly href: string };
    importScripts?: (...urls: string[]) => void;
  };
  // What is made of a blob has an address in one tab only.
  if (location === undefined || /^(blob|data):/.test(location.href)) return undefined;
  let isModule = false;
  try {
    // Throws in a module, in Firefox only if there is an address. This is none, so nothing is fetched, and
    // it has to pass as one where Trusted Types are required.
    importScripts?.();
    importScripts?.(trusted("http://:"));
  } catch (refusal) {
    isModule = refusal instanceof TypeError;
  }
  return { url: location.href, type: isModule ? "module" : "classic" };
}
