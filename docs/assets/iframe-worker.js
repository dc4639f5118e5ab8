/* Search without a server. The theme searches in a Web Worker, and browsers start none for pages that were opened from
   disk. For such pages this stands in: the same script runs in a hidden frame, and is spoken to in the same way.
   (The name of this file tells the theme's plug-in `offline` that it need not fetch one like it from elsewhere.) */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #inside;
    #waiting = []; // what was said before the script had been read

    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(address, location.href);
      script.onload = () => {
        this.#inside = inside;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.#inside) this.#inside.dispatchEvent(new this.#inside.MessageEvent("message", { data }));
      else this.#waiting.push(data);
    }
  };
}
