// The SharedWorker: one hub for all tabs of a site.

import { Hub } from "./hub.js";

const hub = new Hub();

globalThis.onconnect = ({ ports: [port] }) => {
  const tab = { post: (message) => port.postMessage(message) };
  port.onmessage = ({ data }) => hub.receive(tab, data);
  port.onclose = () => hub.gone(tab);
};
