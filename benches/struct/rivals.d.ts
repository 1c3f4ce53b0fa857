/** The used parts of packages in benches/rivals, so that types can be checked without installing them. */

declare module "flatbuffers" {
  export class ByteBuffer {
    constructor(bytes: Uint8Array);
    readInt32(at: number): number;
    readUint16(at: number): number;
    writeUint16(at: number, value: number): void;
    position(): number;
    __offset(table: number, field: number): number;
    __string(at: number): string;
  }
  export class Builder {
    constructor(size: number);
    startObject(fields: number): void;
    addFieldInt16(field: number, value: number, fallback: number): void;
    addFieldOffset(field: number, offset: number, fallback: number): void;
    endObject(): number;
    createString(text: string): number;
    finish(root: number): void;
    asUint8Array(): Uint8Array;
    clear(): void;
  }
}
