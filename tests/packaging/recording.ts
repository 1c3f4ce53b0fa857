/** Samples in a second. */
export const RECORDING_RATE = 22_050;

/** A recording that every browser plays: uncompressed, one byte a sample, all zero. */
export function recording(seconds: number): Uint8Array {
  const header = new DataView(new ArrayBuffer(44));
  const length = seconds * RECORDING_RATE;
  const write = (at: number, text: string) => {
    for (let i = 0; i < text.length; i++) header.setUint8(at + i, text.charCodeAt(i));
  };
  write(0, "RIFF");
  header.setUint32(4, 36 + length, true);
  write(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, RECORDING_RATE, true);
  header.setUint32(28, RECORDING_RATE, true);
  header.setUint16(32, 1, true);
  header.setUint16(34, 8, true);
  write(36, "data");
  header.setUint32(40, length, true);
  const bytes = new Uint8Array(44 + length).fill(128);
  bytes.set(new Uint8Array(header.buffer));
  return bytes;
}
