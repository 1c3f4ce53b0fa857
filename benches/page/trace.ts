/** Records when the platform is called and when it has answered, by replacing its functions. */

/** A step: its name, and when it began and ended, in milliseconds of the page's clock. */
export interface Step {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

const steps: Step[] = [];

const now = () => performance.timeOrigin + performance.now();

export function mark(name: string): void {
  steps.push({ name, from: now(), to: now() });
}

type Method = (...args: unknown[]) => unknown;

function record(owner: object | undefined, name: string, title = name): void {
  const known = owner as Record<string, Method> | undefined;
  const original = known?.[name];
  if (known === undefined || original === undefined) return;
  known[name] = function (this: unknown, ...args: unknown[]) {
    const from = now();
    const done = () => steps.push({ name: title, from, to: now() });
    const result = original.apply(this, args);
    if (result instanceof Promise) result.then(done, done);
    else done();
    return result;
  };
}

mark("script begins");
const { FileSystemFileHandle: Entry, FileSystemSyncAccessHandle: Handle } =
  globalThis as unknown as Record<string, { prototype: object } | undefined>;
record(WebAssembly, "compile");
record(WebAssembly, "compileStreaming");
record(WebAssembly, "instantiate");
record(globalThis, "atob");
record(globalThis, "fetch");
record(globalThis, "postMessage");
record(StorageManager.prototype, "getDirectory");
record(FileSystemDirectoryHandle.prototype, "getFileHandle");
record(Entry?.prototype, "createSyncAccessHandle");
for (const call of ["read", "write", "flush", "truncate", "getSize"]) {
  record(Handle?.prototype, call);
}
const request = LockManager.prototype.request as Method;
LockManager.prototype.request = function (this: LockManager, name: string, ...more: unknown[]) {
  const from = now();
  const use = more.at(-1) as Method;
  const granted = (...args: unknown[]) => {
    steps.push({ name: `lock ${name.slice(0, 12)}`, from, to: now() });
    return use(...args);
  };
  return request.call(this, name, ...more.slice(0, -1), granted);
} as LockManager["request"];
addEventListener("message", ({ data }) => mark(`message ${(data as { type?: string }).type}`));

const channel = new BroadcastChannel("trace");
channel.onmessage = () => channel.postMessage(steps);
