"""Dashboards for Grafana and alerts for Prometheus, generated into the chart."""
