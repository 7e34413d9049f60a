"""The pages in a real browser, over the whole product as processes."""
