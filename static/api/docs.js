// Shows the schema that the page's address names. Everything comes from this server.
"use strict";

const place = document.getElementById("docs");
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.schema,
  deepLinking: true,
  docExpansion: "none",
  validatorUrl: null,
  tryItOutEnabled: true,
});
