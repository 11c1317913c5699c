"""What Grafana and Prometheus are told about GantryMQ: dashboards and alerts, generated into the chart."""
