// Numbers, sizes, durations and times, as people read them.

export const count = (value) => Math.round(value ?? 0).toLocaleString("en");

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A number in few characters: 12.3k. */
export function short(value) {
  if (value < 10 && value % 1) return value.toFixed(1);
  if (value < 10_000) return count(value);
  if (value < 1e6) return `${(value / 1e3).toFixed(value < 1e5 ? 1 : 0)}k`;
  if (value < 1e9) return `${(value / 1e6).toFixed(1)}M`;
  return `${(value / 1e9).toFixed(1)}G`;
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; at++) bytes /= 1024;
  return at ? `${bytes.toFixed(1)} ${units[at]}` : `${bytes} B`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const utc = (us) => (us ? new Date(us / 1000).toISOString().replace("T", " ").replace("Z", " UTC") : "");

/** The time of day, with the date if it is not today. */
export function time(us, hasMillis = false) {
  if (!us) return "–";
  const at = new Date(us / 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  const clock = at.toLocaleTimeString("en-GB") + (hasMillis ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
  return isToday ? clock : `${at.toLocaleDateString("en-CA")} ${clock}`;
}

/** µs since 1970 for the value of a datetime-local field. */
export const fromLocal = (text) => (text ? new Date(text).getTime() * 1000 : "");

export const shortId = (id) => `${id.slice(0, 8)}…${id.slice(24, 32)}:${id.split(":")[1] ?? ""}`;
export const shortSource = (source) => `${source.slice(0, 8)}…${source.slice(-8)}`;

export function bytesOf(given) {
  if (!given) return new Uint8Array();
  if (given.base64 !== undefined) return Uint8Array.from(atob(given.base64), (one) => one.charCodeAt(0));
  return new TextEncoder().encode(given.text ?? "");
}

export function asHex(given) {
  const bytes = bytesOf(given).slice(0, 4096);
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : "·")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return rows.join("\n");
}

/** Laid out if it is JSON, else null. */
export function asJson(given) {
  try {
    return given?.text && /^\s*[[{]/.test(given.text) ? JSON.stringify(JSON.parse(given.text), null, 2) : null;
  } catch {
    return null;
  }
}

/** One line of a payload. */
export function oneLine(given) {
  if (!given) return "";
  if (given.base64 !== undefined) return [...bytesOf(given).slice(0, 48)].map((one) => one.toString(16).padStart(2, "0")).join(" ");
  return (given.text ?? "").slice(0, 300);
}
